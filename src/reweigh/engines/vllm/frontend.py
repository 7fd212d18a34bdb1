"""vLLM's front end: refuses an engine that cannot be served, and resolves what each request asks for."""

from __future__ import annotations

import logging
import sys
from typing import Any

from reweigh.engines.vllm import chats, metrics, outputs
from reweigh.engines.vllm.config import MARK, Settings, asked_beta, settings_in, speaks_of_reweigh
from reweigh.engines.vllm.refusals import check_engine
from reweigh.errors import InputError

SERVER = "vllm.v1.engine.async_llm"
"""The engine of vLLM's servers; a process without it answers no chats."""

logger = logging.getLogger(__name__)


def check(config: Any) -> None:
    """Refuse a configuration, a model or a table that does not fit, before anything is loaded."""
    settings = settings_in(config.additional_config)
    if settings is None:
        return
    from vllm.platforms import current_platform

    from reweigh.engines.vllm.pairing import check_table

    bear_llvmlite()
    check_engine(config, settings, on_cpu=current_platform.is_cpu())
    check_table(config.model_config, config.load_config, settings)
    metrics.start_anew()


def bear_llvmlite() -> None:
    """Let vLLM look through all modules of this process for kernels, as it does when a worker starts on a CPU.

    llvmlite's library, loaded with numba, answers any attribute with a foreign function, ``__dict__`` too; it is taught
    to answer that one with a mapping.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    table = getattr(library, "_fntab", None)
    if isinstance(table, dict):
        table.setdefault("__dict__", {})


def tie(processor: Any) -> None:
    """Let every request of an input processor be prepared, and its outcome be watched for."""
    from vllm.exceptions import VLLMValidationError

    config = processor.vllm_config
    settings = settings_in(config.additional_config)
    default = _default_beta(settings, config.model_config.hf_config)
    original = processor.process_inputs

    def process_inputs(*args: Any, **kwargs: Any) -> Any:
        request = original(*args, **kwargs)
        if request.sampling_params is not None:
            try:
                prepare(request, settings, default, config.model_config.logprobs_mode)
            except InputError as error:  # as vLLM says it, so that a server answers 400
                raise VLLMValidationError(str(error)) from error
        return request

    processor.process_inputs = process_inputs
    if settings is not None and not settings.observe:
        outputs.watch()
        if SERVER in sys.modules:
            chats.watch()


def _default_beta(settings: Settings | None, config: Any) -> float:
    """The beta of requests that name none, logged once."""
    if settings is None or settings.table is None:
        return 0.0
    from reweigh.engines.vllm.pairing import point_of

    point = point_of(settings, config)
    logger.info("reweigh edits image requests: %s", point)
    return point.beta


def prepare(request: Any, settings: Settings | None, default: float, logprobs_mode: str) -> None:
    """Mark a request that may hold an image with its beta; in exact mode let it compute its whole prompt."""
    params = request.sampling_params
    if settings is None:
        if speaks_of_reweigh(params.extra_args):
            raise InputError(
                "this request asks for reweigh, but the engine was started without it",
                hint='start vLLM with --additional-config \'{"reweigh": {"table": "FOLDER"}}\'',
            )
        return
    beta = asked_beta(params.extra_args, settings, default)
    if not request.mm_features and request.prompt_embeds is None:
        return
    if beta > 0 and _is_beam(params) and not logprobs_mode.startswith("processed"):
        raise InputError(
            "vLLM's beam search ranks by log-probabilities before the edit",
            hint="start vLLM with --logprobs-mode processed_logprobs, or decode greedily or by sampling",
        )
    params.extra_args = {**(params.extra_args or {}), MARK: 0.0 if settings.observe else beta}
    if settings.observe or (beta > 0 and settings.prefix_cache == "exact"):
        params.skip_reading_prefix_cache = True


def _is_beam(params: Any) -> bool:
    """The single steps into which vLLM takes its beam search apart."""
    return bool(params.max_tokens == 1 and params.logprobs and not params.detokenize)
