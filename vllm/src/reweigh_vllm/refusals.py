"""Refuse engines whose edits would not be right, at start and with the reason. Reads vLLM's configuration only.

A family is served if its tokens were compared with the transformers engine's; others are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reweigh_vllm.core import UnsupportedError, family_of
from reweigh_vllm.settings import Settings

WORKER = "reweigh_vllm.worker.ReweighWorker"
WORKERS = ("vllm.v1.worker.gpu_worker.Worker", "vllm.v1.worker.cpu_worker.CPUWorker", WORKER)
SCHEDULER = "reweigh_vllm.schedulers.ReweighScheduler"
ASYNC_SCHEDULER = "reweigh_vllm.schedulers.ReweighAsyncScheduler"
SCHEDULERS = (SCHEDULER, ASYNC_SCHEDULER)
"""What an engine may name: reweigh's own parts, or vLLM's that they are made of."""

WITHOUT = "start without it, or without reweigh"

SERVED = ("llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3")
"""By ``model_type``, as the configuration of the checkpoint gives it."""

REASONS = {
    "instructblip": "vLLM does not support InstructBLIP",
    "blip-2": "its decoder keeps its blocks elsewhere in vLLM, and has not been compared",
    "qwen3_vl": "vLLM hands out its states after DeepStack's addition, which has not been compared",
}
GEMMA_ON_CPU = (
    "vLLM's CPU attention ignores that the positions of a Gemma 3 image see each other, so neither its states nor its "
    "text are the model's"
)


def check_engine(config: Any, settings: Settings, *, on_cpu: bool) -> None:
    """Refuse an engine configuration under which an edit would not be right."""
    for reason, hint in _problems(config):
        raise UnsupportedError(f"reweigh cannot serve this engine: {reason}", hint=hint)
    if settings.observe and config.speculative_config is not None:
        raise UnsupportedError("a calibration observes plain decoding", hint="leave speculation out")
    if not config.model_config.is_multimodal_model:
        raise UnsupportedError(
            f"{config.model_config.model} takes no images", hint="leave reweigh out of additional_config"
        )
    check_family(config.model_config.hf_config, on_cpu=on_cpu)
    if _runs_transformers(config.model_config):
        raise UnsupportedError(
            "reweigh cannot serve this engine: vLLM's transformers backend hands out no states of its blocks",
            hint="leave model_impl out, so that vLLM's own model runs",
        )


def _problems(config: Any) -> Iterator[tuple[str, str]]:
    """Yield why edits would not be right in this engine, and what to do."""
    model, parallel = config.model_config, config.parallel_config
    if model.runner_type == "pooling":
        yield "a pooling model decodes nothing", "leave reweigh out of additional_config"
    if config.speculative_config is not None and not config.use_v2_model_runner:
        yield (
            "vLLM's V1 model runner leaves logits processors out when it speculates",
            "use Model Runner V2, or no speculation",
        )
    if config.speculative_config is not None and config.speculative_config.method != "ngram":
        yield (
            "speculation other than ngram has not been compared; eagle3 and dflash use the same outputs of the decoder",
            "use ngram speculation, or none",
        )
    if getattr(parallel, "pipeline_parallel_size", 1) > 1:
        yield (
            "with pipeline parallelism the states of a block and the head lie in different processes",
            "use tensor parallelism",
        )
    if getattr(parallel, "prefill_context_parallel_size", 1) > 1:
        yield "context parallelism splits a prompt's positions", WITHOUT
    if getattr(parallel, "enable_batch_sharded_sampling", False):
        yield "batch-sharded sampling has not been compared", WITHOUT
    if getattr(parallel, "enable_dbo", False) or getattr(parallel, "ubatch_size", 0) > 1:
        yield "dual-batch overlap (enable_dbo, ubatch_size) splits a step's states", WITHOUT
    if _bypasses_the_worker(parallel):
        yield (
            "the older Ray executor bypasses the worker, which reads the states",
            "set VLLM_USE_RAY_V2_EXECUTOR_BACKEND=1, or use --distributed-executor-backend mp",
        )
    if getattr(parallel, "worker_cls", "auto") not in ("auto", *WORKERS):
        yield "it names another worker class, and reweigh needs its own", "leave out worker_cls"
    if getattr(config.scheduler_config, "scheduler_cls", None) not in (None, *SCHEDULERS):
        yield "it names another scheduler class, and reweigh needs its own", "leave out scheduler_cls"
    if config.lora_config is not None:
        yield (
            "LoRA changes the head row by row, and a table belongs to one set of weights",
            "merge the adapter into the weights and calibrate them",
        )
    if config.kv_transfer_config is not None:
        yield "keys and values from another engine come without the image's states", WITHOUT
    if getattr(config, "ec_transfer_config", None) is not None:
        yield "disaggregated encoding has not been compared", WITHOUT
    if config.load_config.load_format == "dummy":
        yield "no table matches dummy weights", "load the checkpoint's weights"
    if _quantizes(model):
        yield (
            "vLLM quantizes the weights as it loads them, and a table belongs to weights as they are stored",
            "store the quantized checkpoint and calibrate it, or start without quantization",
        )
    if getattr(config, "weight_transfer_config", None) is not None:
        yield (
            "its weights will be replaced while it runs, and a table belongs to the weights at start",
            WITHOUT,
        )


def _bypasses_the_worker(parallel: Any) -> bool:
    """Tell whether the older of vLLM's two Ray executors runs the model; 0.33 has only the newer one."""
    if getattr(parallel, "distributed_executor_backend", None) != "ray":
        return False
    from vllm import envs

    return not getattr(envs, "VLLM_USE_RAY_V2_EXECUTOR_BACKEND", True)


def _quantizes(model: Any) -> bool:
    """Tell whether weights are quantized while they are loaded."""
    parts = (model.hf_config, getattr(model.hf_config, "text_config", None))  # where vLLM looks
    names = ("quantization_config", "compression_config")
    is_stored = any(getattr(part, name, None) is not None for part in parts for name in names)
    return getattr(model, "quantization", None) is not None and not is_stored


def _runs_transformers(model: Any) -> bool:
    """Tell whether vLLM runs transformers' model instead of its own."""
    asks = getattr(model, "using_transformers_backend", None)
    return asks is not None and bool(asks())


def check_family(config: Any, *, on_cpu: bool) -> None:
    """Refuse a family that is not served, with the reason."""
    name = str(getattr(config, "model_type", ""))
    known = family_of(config).refused or REASONS.get(name)
    if name not in SERVED or known:
        raise UnsupportedError(
            f"reweigh does not serve {name or 'this model'} inside vLLM: {known or 'it has not been compared'}",
            hint=f"served: {', '.join(SERVED)}; use the transformers engine (reweigh.attach) for other families",
        )
    if name == "gemma3" and on_cpu:
        raise UnsupportedError(
            f"reweigh does not serve gemma3 on this CPU: {GEMMA_ON_CPU}",
            hint="serve it on a GPU, or use the transformers engine (reweigh.attach)",
        )
