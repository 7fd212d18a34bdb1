"""Calibration inside vLLM: the same observations as with the transformers engine, at vLLM's throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.calibration.complete import carry_out
from reweigh.calibration.decoding import greedy_settings
from reweigh.calibration.result import Calibration
from reweigh.engines.vllm.observe import Observer, check_layers
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.points import nearest_point
from reweigh.families.processor_parts import prompt_hash
from reweigh.families.prompts import DESCRIBE
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.provenance import versions
from reweigh.tables.observations import ImageObservations
from reweigh.tables.table import candidate_rule

BATCH = 32
"""Images of one part: enough for vLLM to keep its batch full, few enough to lose when a run is stopped."""


@dataclass(frozen=True)
class VllmJob:
    """A calibration of a model inside vLLM."""

    observer: Observer
    layers: tuple[int, ...]
    prompt: str
    template: str | None
    max_new_tokens: int
    batch_size: int
    generation: Mapping[str, Any]
    readout: str = DMRR

    def made_with(self) -> dict[str, Any]:
        return {
            "identity": self.observer.identity().to_json(),
            "layers": list(self.layers),
            "lens": "native",
            "dtype": self.observer.dtype,
            "chunk": CHUNK,
            "candidates": candidate_rule(),
            "prompt": self.prompt,
            "prompt_sha256": prompt_hash(self.observer.processor, self.prompt, self.template),
            "max_new_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
            "engine": "vllm",
            "versions": versions(),
            **({"generation": dict(self.generation)} if self.generation else {}),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        return {"prompts": self.observer.prompts(pictures, self.prompt, self.template)}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        return self.observer.observe(
            keys, inputs["prompts"], max_new_tokens=self.max_new_tokens, generation=self.generation
        )


def calibrate_in_vllm(
    model: str,
    images: str | Path | Sequence[Any],
    *,
    layers: Sequence[int] | None = None,
    out: str | Path | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = BATCH,
    rule: str = "stable",
    readout: str = DMRR,
    name: str | None = None,
    engine: Mapping[str, Any] | None = None,
    shard: str = "1/1",
    show: bool | None = None,
    on_skip: Callable[[str, str], None] | None = None,
) -> Calibration:
    """Learn token references from unlabeled images with a model that vLLM loads; see ``calibrate``.

    Args:
        model: A Hub id or a checkpoint folder.
        name: What tables call the model, if not that.
        engine: Further arguments of vLLM's ``LLM``: ``dtype``, ``tensor_parallel_size``, ...
    """
    rule_named(rule)
    job = open_vllm_job(
        model,
        layers=layers,
        prompt=prompt,
        template=template,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        readout=readout,
        name=name,
        engine=engine,
    )
    return carry_out(job, images, out=out, rule=rule, shard=shard, show=show, on_skip=on_skip)


def open_vllm_job(
    model: str,
    *,
    layers: Sequence[int] | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = BATCH,
    readout: str = DMRR,
    name: str | None = None,
    engine: Mapping[str, Any] | None = None,
) -> VllmJob:
    """Have vLLM load a model, and tie the settings of a calibration to it."""
    if batch_size < 1 or max_new_tokens < 1:
        raise InputError(f"batch_size {batch_size} and max_new_tokens {max_new_tokens} must be at least 1")
    if readout != DMRR:
        raise UnsupportedError(
            f"the readout {readout} is not observed inside vLLM", hint="use the transformers engine for it"
        )
    blocks = _layers(model, layers, engine or {})
    observer = Observer(model, blocks, engine or {}, name=name or model)
    generation = greedy_settings(observer.generation_config())
    return VllmJob(observer, blocks, prompt, template, max_new_tokens, batch_size, generation)


def _layers(model: str, layers: Sequence[int] | None, engine: Mapping[str, Any]) -> tuple[int, ...]:
    """The blocks asked for, else the paper's for this family, else the last."""
    from transformers import AutoConfig

    named = {name: engine[name] for name in ("revision", "trust_remote_code") if name in engine}
    config: Any = AutoConfig.from_pretrained(model, **named)
    if layers is None:
        published = nearest_point(config.model_type, config.get_text_config().num_hidden_layers)
        layers = (-1,) if published is None else (published.layer,)
    return check_layers(config, layers)
