"""Calibration inside vLLM: the same observations as with the transformers engine, at vLLM's throughput."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.calibration.job import greedy_settings
from reweigh.calibration.loop import run_job
from reweigh.calibration.result import Calibration
from reweigh.calibration.settings import VLLM_BATCH, CalibrationSettings
from reweigh.engines.vllm.observe import Observer, check_layers
from reweigh.errors import UnsupportedError
from reweigh.families.points import nearest_point
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import DESCRIBE
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.provenance import versions
from reweigh.tables.observations import ImageObservations
from reweigh.tables.table import candidate_rule


@dataclass(frozen=True)
class VllmJob:
    """A calibration of a model inside vLLM."""

    observer: Observer
    layers: tuple[int, ...]
    settings: CalibrationSettings
    generation: Mapping[str, Any]

    def made_with(self) -> dict[str, Any]:
        return {
            "identity": self.observer.identity().to_json(),
            "layers": list(self.layers),
            "lens": "native",
            "dtype": self.observer.dtype,
            "chunk": CHUNK,
            "candidates": candidate_rule(),
            "prompt": self.settings.prompt,
            "prompt_sha256": prompt_hash(
                self.observer.processor, self.settings.prompt, self.settings.template
            ),
            "max_new_tokens": self.settings.max_new_tokens,
            "batch_size": self.settings.batch_size,
            "engine": "vllm",
            "versions": versions(),
            **({"generation": dict(self.generation)} if self.generation else {}),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        return {"prompts": self.observer.prompts(pictures, self.settings.prompt, self.settings.template)}

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        return self.observer.observe(
            keys, inputs["prompts"], max_new_tokens=self.settings.max_new_tokens, generation=self.generation
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
    batch_size: int = VLLM_BATCH,
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
    settings = CalibrationSettings(
        layers=None if layers is None else tuple(layers),
        prompt=prompt,
        template=template,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        readout=readout,
        rule=rule,
        shard=shard,
    )
    job = open_vllm_job(model, settings, name=name, engine=engine)
    return run_job(job, images, settings, out=out, show=show, on_skip=on_skip)


def open_vllm_job(
    model: str,
    settings: CalibrationSettings,
    *,
    name: str | None = None,
    engine: Mapping[str, Any] | None = None,
) -> VllmJob:
    """Have vLLM load a model, and tie the settings of a calibration to it."""
    if settings.readout != DMRR:
        raise UnsupportedError(
            f"the readout {settings.readout} is not observed inside vLLM",
            hint="use the transformers engine for it",
        )
    if (settings.dtype, settings.chunk, settings.kernel) != ("native", CHUNK, "auto"):
        raise UnsupportedError(
            "vLLM ranks its own logits where it runs: dtype, chunk and kernel cannot be set",
            hint="use the transformers engine for them",
        )
    blocks = _layers(model, settings.layers, engine or {})
    observer = Observer(model, blocks, engine or {}, name=name or model)
    return VllmJob(observer, blocks, settings, greedy_settings(observer.generation_config()))


def _layers(model: str, layers: Sequence[int] | None, engine: Mapping[str, Any]) -> tuple[int, ...]:
    """The blocks asked for, else the paper's for this family, else the last."""
    from transformers import AutoConfig

    named = {name: engine[name] for name in ("revision", "trust_remote_code") if name in engine}
    config: Any = AutoConfig.from_pretrained(model, **named)
    if layers is None:
        published = nearest_point(config.model_type, config.get_text_config().num_hidden_layers)
        layers = (-1,) if published is None else (published.layer,)
    return check_layers(config, layers)
