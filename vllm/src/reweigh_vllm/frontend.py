"""vLLM's front end: refuse engines that cannot be served, and prepare requests."""

from __future__ import annotations

import functools
import sys
from typing import Any

from reweigh_vllm import outputs, streams
from reweigh_vllm.core import InputError
from reweigh_vllm.outputs import Metrics, Outputs
from reweigh_vllm.plugin import KEY, after, logger
from reweigh_vllm.refusals import ASYNC_SCHEDULER, SCHEDULER, WORKER, check_engine
from reweigh_vllm.settings import (
    ARGUMENTS,
    EVIDENCE_KEY,
    MARK,
    SHOWN,
    Settings,
    asked_beta,
    asks_for_evidence,
    settings_in,
)
from reweigh_vllm.table import check_table, open_table

SERVER = "vllm.entrypoints.launchers.api_server.entry"
"""The module that starts vLLM's HTTP server; a process without it has no server."""


def configure(config: Any) -> None:
    """Check an engine's configuration before anything is loaded, and make it name reweigh's parts."""
    from vllm.platforms import current_platform

    settings = settings_in(config.additional_config)
    if settings is None:
        return
    patch_llvmlite()
    check_engine(config, settings, on_cpu=current_platform.is_cpu())
    if not settings.observe:
        opened = open_table(settings, config.model_config.hf_config)
        if not settings.force:
            check_table(opened, config.model_config, config.load_config)
        # vLLM hashes the section into the key of its compile cache, and the tapped layer is part of the graph
        section = {**config.additional_config[KEY], "layer": opened.table.layer, "sha256": opened.sha256}
        config.additional_config = {**config.additional_config, KEY: section}
        is_async = config.scheduler_config.async_scheduling
        config.scheduler_config.scheduler_cls = ASYNC_SCHEDULER if is_async else SCHEDULER
    config.parallel_config.worker_cls = WORKER
    outputs.reset_metrics()
    _follow_engines()


def patch_llvmlite() -> None:
    """Give llvmlite's library a ``__dict__``, which vLLM asks every module for when a worker starts on a CPU.

    The library, loaded with numba, answers any attribute with a foreign function, ``__dict__`` too.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    table = getattr(library, "_fntab", None)
    if isinstance(table, dict):
        table.setdefault("__dict__", {})


@functools.cache
def _follow_engines() -> None:
    """Attach a ``FrontEnd`` to every configured engine that this process makes from now on; once."""
    from vllm.v1.engine.async_llm import AsyncLLM
    from vllm.v1.engine.llm_engine import LLMEngine

    def attach(engine: Any, _: Any) -> None:
        settings = settings_in(engine.vllm_config.additional_config)
        if settings is not None:
            engine.reweigh = FrontEnd(engine, settings)

    after(LLMEngine, "__init__", attach)
    after(AsyncLLM, "__init__", attach)
    if SERVER in sys.modules:
        streams.watch()


class FrontEnd:
    """The front end of one configured engine: prepares its requests and reports their outcomes."""

    def __init__(self, engine: Any, settings: Settings) -> None:
        self.settings, self.model = settings, engine.vllm_config.model_config
        self.beta = 0.0
        if not settings.observe:
            opened = open_table(settings, self.model.hf_config)
            self.beta = opened.point.beta
            served = self.model.served_model_name  # the name under which vLLM's own metrics count
            name = served[0] if isinstance(served, list) else served or self.model.model
            metrics = Metrics(str(name), enabled=engine.output_processor.log_stats)
            Outputs(engine.output_processor, metrics, opened.table)
            logger.info("reweigh edits image requests with %s: %s", settings.table, opened.point)
        self._follow(engine.input_processor)

    def _follow(self, processor: Any) -> None:
        """Prepare every request, also those whose raw prompts vLLM processes in a thread."""
        from vllm.exceptions import VLLMValidationError
        from vllm.utils.async_utils import make_async

        original = processor.process_inputs

        def process_inputs(*args: Any, **kwargs: Any) -> Any:
            request = original(*args, **kwargs)
            if request.sampling_params is not None:
                try:
                    prepare(request, self.settings, self.beta, self.model)
                except InputError as error:  # as vLLM says it, so that a server answers 400
                    raise VLLMValidationError(str(error)) from error
            return request

        processor.process_inputs = process_inputs
        processor.process_inputs_async = make_async(process_inputs, executor=processor.renderer._executor)


def prepare(request: Any, settings: Settings, default: float, model: Any) -> None:
    """Mark a request that may hold an image with its beta; in exact mode it computes its whole prompt.

    ``default`` is the beta of requests that set none, ``model`` vLLM's configuration of the model.
    """
    params = request.sampling_params
    given = params.extra_args or {}
    beta, is_shown = asked_beta(given, settings, default), asks_for_evidence(given)
    if not request.mm_features and request.prompt_embeds is None:
        return
    if settings.observe:
        beta, is_shown = 0.0, False
    elif _is_beam(params) and not any(name in given for name in ARGUMENTS):
        raise InputError(
            "vLLM's beam search drops what its request asks of reweigh, and ranks by log-probabilities before the edit",
            hint="decode greedily or by sampling, or search beams with the transformers engine (reweigh.attach)",
        )
    if is_shown:
        _check_evidence(params, model)
    params.extra_args = {**given, MARK: beta, **({SHOWN: True} if is_shown else {})}
    if settings.observe or (settings.prefix_cache == "exact" and (beta > 0 or is_shown)):
        params.skip_reading_prefix_cache = True


def _is_beam(params: Any) -> bool:
    """Tell whether a request looks like a single step of vLLM's beam search, which drops the extra arguments."""
    return bool(params.max_tokens == 1 and params.logprobs and not params.detokenize)


def _check_evidence(params: Any, model: Any) -> None:
    """Refuse to show the tokens of a request whose text is not one."""
    problems = {
        "has several samples": (params.n or 1) > 1,
        "is not detokenized": not params.detokenize,
        "runs in an engine without a tokenizer": model.skip_tokenizer_init,
    }
    found = next((problem for problem, applies in problems.items() if applies), None)
    if found is not None:
        raise InputError(
            f"{EVIDENCE_KEY} was asked for, but the request {found}", hint="ask for it with n = 1 and text"
        )
