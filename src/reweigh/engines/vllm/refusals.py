"""What cannot be edited right inside vLLM, refused at start with the reason. Reads vLLM's configuration, nothing else.

A family is served when its tokens were compared with the transformers engine's; every other one is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reweigh.engines.vllm.config import Settings
from reweigh.errors import UnsupportedError
from reweigh.families.catalogue import family_of

Rule = tuple[Callable[[Any], bool], str, str]

WORKER = "reweigh.engines.vllm.worker.ReweighWorker"
WORKERS = ("vllm.v1.worker.gpu_worker.Worker", "vllm.v1.worker.cpu_worker.CPUWorker", WORKER)
SCHEDULER = "reweigh.engines.vllm.schedulers.ReweighScheduler"
ASYNC_SCHEDULER = "reweigh.engines.vllm.schedulers.ReweighAsyncScheduler"
SCHEDULERS = (SCHEDULER, ASYNC_SCHEDULER)
"""What an engine may name, because it is what reweigh's own parts are made of, or these parts themselves."""

WITHOUT = "start without it, or without reweigh"

SERVED = ("llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3")
"""By ``model_type``, as the configuration of the checkpoint gives it."""

REASONS = {
    "instructblip": "vLLM does not know InstructBLIP",
    "blip-2": "its decoder keeps its blocks elsewhere in vLLM, and has not been compared",
    "qwen3_vl": "vLLM hands out its states after DeepStack's addition, which has not been compared",
}
GEMMA_ON_CPU = (
    "vLLM's CPU attention ignores that the positions of a Gemma 3 image see each other, so neither its states nor its "
    "text are the model's"
)


def _speculates(config: Any) -> bool:
    return config.speculative_config is not None


def _quantises(config: Any) -> bool:
    """Whether weights are quantised as they are loaded, not as they are stored."""
    model = config.model_config
    parts = (model.hf_config, getattr(model.hf_config, "text_config", None))  # where vLLM looks
    names = ("quantization_config", "compression_config")
    is_stored = any(getattr(part, name, None) is not None for part in parts for name in names)
    return getattr(model, "quantization", None) is not None and not is_stored


def _imitates(config: Any) -> bool:
    """Whether vLLM runs transformers' own model instead of one of its own."""
    asks = getattr(config.model_config, "using_transformers_backend", None)
    return asks is not None and bool(asks())


def _bypasses_the_worker(config: Any) -> bool:
    if getattr(config.parallel_config, "distributed_executor_backend", None) != "ray":
        return False
    from vllm import envs

    return not envs.VLLM_USE_RAY_V2_EXECUTOR_BACKEND


def _foreign(config: Any, name: str, known: tuple[Any, ...]) -> bool:
    return getattr(config, name, known[0]) not in known


def _parallel(name: str) -> Callable[[Any], bool]:
    return lambda config: getattr(config.parallel_config, name, 1) > 1


RULES: tuple[Rule, ...] = (
    (
        lambda config: config.model_config.runner_type == "pooling",
        "a pooling model decodes nothing",
        "leave reweigh out of additional_config",
    ),
    (
        lambda config: _speculates(config) and not config.use_v2_model_runner,
        "vLLM's V1 model runner leaves logits processors out when it speculates",
        "use Model Runner V2, or no speculation",
    ),
    (
        lambda config: _speculates(config) and config.speculative_config.method != "ngram",
        "speculation other than ngram has not been compared; eagle3 and dflash use the same outputs of the decoder",
        "use ngram speculation, or none",
    ),
    (
        _parallel("pipeline_parallel_size"),
        "with pipeline parallelism the states of a block and the head lie in different processes",
        "use tensor parallelism",
    ),
    (_parallel("prefill_context_parallel_size"), "context parallelism splits a prompt's positions", WITHOUT),
    (
        lambda config: bool(getattr(config.parallel_config, "enable_batch_sharded_sampling", False)),
        "batch-sharded sampling has not been compared",
        WITHOUT,
    ),
    (
        lambda config: (
            bool(getattr(config.parallel_config, "enable_dbo", False))
            or getattr(config.parallel_config, "ubatch_size", 0) > 1
        ),
        "dual-batch overlap (enable_dbo, ubatch_size) splits a step's states",
        WITHOUT,
    ),
    (
        _bypasses_the_worker,
        "the older Ray executor calls the model runner past the worker, which reads the states",
        "set VLLM_USE_RAY_V2_EXECUTOR_BACKEND=1, or use --distributed-executor-backend mp",
    ),
    (
        lambda config: _foreign(config.parallel_config, "worker_cls", ("auto", *WORKERS)),
        "it names a worker class of its own, and reweigh brings its own",
        "leave out worker_cls",
    ),
    (
        lambda config: _foreign(config.scheduler_config, "scheduler_cls", (None, *SCHEDULERS)),
        "it names a scheduler class of its own, and reweigh brings its own",
        "leave out scheduler_cls",
    ),
    (
        lambda config: config.lora_config is not None,
        "LoRA changes the head row by row, and a table belongs to one set of weights",
        "merge the adapter into the weights and calibrate them",
    ),
    (
        lambda config: config.kv_transfer_config is not None,
        "keys and values that come from elsewhere bring no states of the image along",
        WITHOUT,
    ),
    (
        lambda config: getattr(config, "ec_transfer_config", None) is not None,
        "disaggregated encoding has not been compared",
        WITHOUT,
    ),
    (
        lambda config: config.load_config.load_format == "dummy",
        "dummy weights belong to no table",
        "load the checkpoint's weights",
    ),
    (
        _quantises,
        "vLLM quantises the weights as it loads them, and a table belongs to weights as they are stored",
        "store the quantised checkpoint and calibrate it, or start without quantization",
    ),
    (
        lambda config: getattr(config, "weight_transfer_config", None) is not None,
        "its weights are to be replaced under way, and a table belongs to the weights of the start",
        WITHOUT,
    ),
)


def check_engine(config: Any, settings: Settings, *, on_cpu: bool) -> None:
    """Refuse an engine configuration under which an edit would not be right."""
    for applies, reason, hint in RULES:
        if applies(config):
            raise UnsupportedError(f"reweigh cannot serve this engine: {reason}", hint=hint)
    if settings.observe and _speculates(config):
        raise UnsupportedError("a calibration observes plain decoding", hint="leave speculation out")
    if not config.model_config.is_multimodal_model:
        raise UnsupportedError(
            f"{config.model_config.model} takes no images", hint="leave reweigh out of additional_config"
        )
    check_family(config.model_config.hf_config, on_cpu=on_cpu)
    if _imitates(config):
        raise UnsupportedError(
            "reweigh cannot serve this engine: vLLM's transformers backend hands out no states of its blocks",
            hint="leave model_impl out, so that vLLM's own model runs",
        )


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
