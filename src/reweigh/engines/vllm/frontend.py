"""vLLM's front end: refuses an engine that cannot be served, configures the others, and prepares each request."""

from __future__ import annotations

import functools
import logging
import sys
from dataclasses import replace
from typing import Any

from reweigh.engines.vllm import chats, metrics
from reweigh.engines.vllm.config import (
    EVIDENCE_KEY,
    MARK,
    SHOWN,
    Settings,
    asked_beta,
    asks_for_evidence,
    settings_in,
)
from reweigh.engines.vllm.metrics import Metrics
from reweigh.engines.vllm.outputs import Outputs
from reweigh.engines.vllm.plugin import KEY, after
from reweigh.engines.vllm.refusals import ASYNC_SCHEDULER, SCHEDULER, WORKER, check_engine
from reweigh.errors import InputError
from reweigh.tables.table import ReferenceTable

SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""What starts vLLM's HTTP server; a process without it answers no chats."""

logger = logging.getLogger(__name__)


def configure(config: Any) -> None:
    """Check an engine's configuration and make it name reweigh's own parts; before anything is loaded."""
    from vllm.platforms import current_platform

    from reweigh.engines.vllm.pairing import check_table, open_table

    settings = settings_in(config.additional_config)
    if settings is None:
        return
    bear_llvmlite()
    check_engine(config, settings, on_cpu=current_platform.is_cpu())
    if settings.table is not None:
        table = open_table(settings, config.model_config.hf_config)
        check_table(table, config.model_config, config.load_config, force=settings.force)
        settings = replace(settings, layer=table.layer, sha256=table.fingerprint)
        section = {**config.additional_config[KEY], "layer": table.layer, "sha256": table.fingerprint}
        # vLLM hashes this into the key of its compile cache: the tap is part of the graph
        config.additional_config = {**config.additional_config, KEY: section}
    config.parallel_config.worker_cls = WORKER
    if not settings.observe:
        is_async = config.scheduler_config.async_scheduling
        config.scheduler_config.scheduler_cls = ASYNC_SCHEDULER if is_async else SCHEDULER
    metrics.start_anew()
    _follow_engines()


def bear_llvmlite() -> None:
    """Let vLLM look through all modules of this process for kernels, as it does when a worker starts on a CPU.

    llvmlite's library, loaded with numba, answers any attribute with a foreign function, ``__dict__`` too; it is taught
    to answer that one with a mapping.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    table = getattr(library, "_fntab", None)
    if isinstance(table, dict):
        table.setdefault("__dict__", {})


@functools.cache
def _follow_engines() -> None:
    """Tie every configured engine that this process makes from now on; once."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine

    after(LLMEngine, "__init__", lambda engine, _: tie(engine))
    after(AsyncLLM, "__init__", lambda engine, _: tie(engine))
    if SERVER in sys.modules:
        chats.watch(sys.modules[SERVER])


def tie(engine: Any) -> None:
    """Let an engine's requests be prepared and their outcomes be told, if it is configured."""
    config = engine.vllm_config
    settings = settings_in(config.additional_config)
    if settings is None:
        return
    from vllm.exceptions import VLLMValidationError

    table, default = _table_and_beta(settings, config.model_config.hf_config)
    processor = engine.input_processor
    original, mode = processor.process_inputs, config.model_config.logprobs_mode

    def process_inputs(*args: Any, **kwargs: Any) -> Any:
        request = original(*args, **kwargs)
        if request.sampling_params is not None:
            try:
                prepare(request, settings, default, mode)
            except InputError as error:  # as vLLM says it, so that a server answers 400
                raise VLLMValidationError(str(error)) from error
        return request

    processor.process_inputs = process_inputs
    if not settings.observe:
        counted = Metrics(_served_name(config.model_config), enabled=engine.output_processor.log_stats)
        Outputs(engine.output_processor, counted, table, refuses=settings.unedited == "refuse")


def _served_name(model_config: Any) -> str:
    """The name under which vLLM's own metrics count."""
    served = model_config.served_model_name
    return str(served[0] if isinstance(served, list) else served or model_config.model)


def _table_and_beta(settings: Settings, config: Any) -> tuple[ReferenceTable | None, float]:
    """The table, and the beta of requests that name none, logged once."""
    if settings.table is None:
        return None, 0.0
    from reweigh.engines.vllm.pairing import open_table, point_of

    table = open_table(settings, config)
    point = point_of(table, settings, config)
    logger.info("reweigh edits image requests: %s", point)
    return table, point.beta


def prepare(request: Any, settings: Settings, default: float, logprobs_mode: str) -> None:
    """Mark a request that may hold an image with its beta; in exact mode let it compute its whole prompt."""
    params = request.sampling_params
    is_beam = _is_beam(params)
    asked = {**(chats.beam_arguments() if is_beam else {}), **(params.extra_args or {})}
    beta = asked_beta(asked, settings, default)
    if not request.mm_features and request.prompt_embeds is None:
        return
    if beta > 0 and is_beam and not logprobs_mode.startswith("processed"):
        raise InputError(
            "vLLM's beam search ranks by log-probabilities before the edit",
            hint="start vLLM with --logprobs-mode processed_logprobs, or decode greedily or by sampling",
        )
    shown = asks_for_evidence(asked)
    if shown and (beta == 0 or (params.n or 1) > 1):
        raise InputError(
            f"{EVIDENCE_KEY} was asked for, but the request "
            + ("is not edited" if beta == 0 else "has several samples"),
            hint="ask for it with edits and n = 1",
        )
    params.extra_args = {**asked, MARK: 0.0 if settings.observe else beta, **({SHOWN: True} if shown else {})}
    if settings.observe or (beta > 0 and settings.prefix_cache == "exact"):
        params.skip_reading_prefix_cache = True


def _is_beam(params: Any) -> bool:
    """The single steps into which vLLM takes its beam search apart."""
    return bool(params.max_tokens == 1 and params.logprobs and not params.detokenize)
