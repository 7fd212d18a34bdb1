"""The job of a calibration with transformers: a model, what is read of it, and how it decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.calibration.decoding import greedy_settings
from reweigh.engines.transformers.observe import observe
from reweigh.errors import InputError, require_known
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.identity import identify
from reweigh.families.points import published_point
from reweigh.families.processor_parts import prompt_hash
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.method.lens import CHUNK, Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.provenance import versions
from reweigh.tables.observations import ImageObservations
from reweigh.tables.table import candidate_rule


@dataclass(frozen=True)
class TransformersJob:
    """One calibration: model, what to read, and how to decode."""

    model: Any
    processor: Any
    anatomy: Anatomy
    lens: Lens
    layers: tuple[int, ...]
    prompt: str
    template: str | None
    max_new_tokens: int
    batch_size: int
    kernel: str
    readout: str

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""
        generation = greedy_settings(self.anatomy.language_model.generation_config)
        return {
            "identity": identify(self.anatomy, self.processor).to_json(),
            "layers": list(self.layers),
            "lens": self.lens.mode,
            "dtype": self.lens.dtype,
            "chunk": self.lens.chunk,
            "candidates": candidate_rule(),
            "prompt": self.prompt,
            "prompt_sha256": prompt_hash(self.processor, self.prompt, self.template),
            "max_new_tokens": self.max_new_tokens,
            "batch_size": self.batch_size,
            "versions": versions(),
            **({"generation": generation} if generation else {}),
            **({} if self.readout == DMRR else {"readout": self.readout}),
        }

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """The model's inputs of some pictures."""
        prompts = [self.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        return observe(
            self.anatomy,
            self.lens,
            self.layers,
            keys,
            inputs,
            max_new_tokens=self.max_new_tokens,
            kernel=self.kernel,
            readout=self.readout,
        )


def open_job(
    model: Any,
    processor: Any,
    *,
    layers: Sequence[int] | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = 1,
    dtype: str = "native",
    chunk: int = CHUNK,
    kernel: str = "auto",
    readout: str = DMRR,
) -> TransformersJob:
    """Tie the settings of a calibration to a model, refusing what cannot be; ``calibrate`` explains each."""
    if batch_size < 1 or max_new_tokens < 1:
        raise InputError(f"batch_size {batch_size} and max_new_tokens {max_new_tokens} must be at least 1")
    if layers is not None and not layers:
        raise InputError("no layer was given", hint="layers=[-1] reads the last block")
    require_known("readout", [readout], READOUTS)
    anatomy = find_anatomy(model)
    if layers is None:
        published = published_point(anatomy)
        layers = (-1,) if published is None else (published.layer,)
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = Lens(anatomy.norm, anatomy.head, dtype=dtype, chunk=chunk)
    decoding = (prompt, template, max_new_tokens, batch_size)
    return TransformersJob(model, processor, anatomy, lens, blocks, *decoding, kernel, readout)
