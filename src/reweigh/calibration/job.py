"""What a calibration does: its settings, the same for every engine, and a loaded model tied to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.engines.transformers.observe import observe
from reweigh.errors import InputError, require_known
from reweigh.families.anatomy import Anatomy, find_anatomy, is_mlx
from reweigh.families.points import published_point
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.method.lens import CHUNK, DTYPES, Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import rule_named
from reweigh.provenance import versions
from reweigh.shards import Shard
from reweigh.tables.observations import ImageObservations
from reweigh.tables.table import candidate_rule

VLLM_BATCH = 32
"""Images of one part inside vLLM: enough to keep its batch full, few enough to lose when a run is stopped."""


@dataclass(frozen=True, kw_only=True)
class CalibrationSettings:
    """What a calibration reads, how it decodes, and what it registers; impossible values are refused.

    Attributes:
        layers: Blocks to read, all in one run; -1 is the last. ``None`` for the paper's layer for this model, else the last.
        prompt: What the model is asked about every image.
        template: Prompt template with {prompt}, for processors without a chat template.
        max_new_tokens: Longest description.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        chunk: Positions per matrix product.
        kernel: Ranking kernel.
        readout: How logits become evidence: the method's "dmrr", or another one for comparison.
        rule: Which tokens are registered: "stable" (the paper's), or "count-N".
        shard: Part of the images, as i/n.
    """

    layers: tuple[int, ...] | None = None
    prompt: str = DESCRIBE
    template: str | None = None
    max_new_tokens: int = 512
    batch_size: int = 1
    dtype: str = "native"
    chunk: int = CHUNK
    kernel: str = "auto"
    readout: str = DMRR
    rule: str = "stable"
    shard: str = "1/1"

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.max_new_tokens < 1:
            raise InputError(
                f"batch_size {self.batch_size} and max_new_tokens {self.max_new_tokens} must be at least 1"
            )
        if self.layers is not None:
            object.__setattr__(self, "layers", tuple(self.layers))
            if not self.layers:
                raise InputError("no layer was given", hint="layers=[-1] reads the last block")
        require_known("lens type", [self.dtype], DTYPES)
        require_known("readout", [self.readout], READOUTS)
        rule_named(self.rule)
        Shard.parse(self.shard)


@dataclass(frozen=True)
class TransformersJob:
    """The settings of a calibration tied to a model."""

    model: Any
    processor: Any
    anatomy: Anatomy
    lens: Lens
    layers: tuple[int, ...]
    settings: CalibrationSettings

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""
        generation = self.generation()
        return {
            "identity": self.anatomy.identify(self.processor).to_json(),
            "layers": list(self.layers),
            "lens": self.lens.mode,
            "dtype": self.lens.dtype,
            "chunk": self.lens.chunk,
            "candidates": candidate_rule(),
            "prompt": self.settings.prompt,
            "prompt_sha256": prompt_hash(self.processor, self.settings.prompt, self.settings.template),
            "max_new_tokens": self.settings.max_new_tokens,
            "batch_size": self.settings.batch_size,
            **self.made_by(),
            "versions": versions(),
            **({"generation": generation} if generation else {}),
            **({} if self.settings.readout == DMRR else {"readout": self.settings.readout}),
        }

    def made_by(self) -> dict[str, Any]:
        """What names the engine, if it is another than transformers."""
        return {}

    def generation(self) -> dict[str, Any]:
        """The checkpoint's own settings that change greedy decoding."""
        return greedy_settings(self.anatomy.language_model.generation_config)

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """The model's inputs of some pictures."""
        prompts = [self.settings.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.settings.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        return observe(
            self.anatomy,
            self.lens,
            self.layers,
            keys,
            inputs,
            max_new_tokens=self.settings.max_new_tokens,
            kernel=self.settings.kernel,
            readout=self.settings.readout,
        )


def open_job(model: Any, processor: Any, settings: CalibrationSettings) -> TransformersJob:
    """Tie the settings of a calibration to a model, refusing layers that it does not have."""
    kind: type[TransformersJob] = TransformersJob
    if is_mlx(model):
        from reweigh.calibration.mlx import MlxJob
        from reweigh.engines.mlx.model import find_anatomy as find_mlx

        kind = MlxJob
        anatomy: Anatomy = find_mlx(model, processor)
    else:
        anatomy = find_anatomy(model)
    layers = settings.layers
    if layers is None:
        published = published_point(anatomy)
        layers = (-1,) if published is None else (published.layer,)
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = Lens(anatomy.norm, anatomy.head, dtype=settings.dtype, chunk=settings.chunk)
    return kind(model, processor, anatomy, lens, blocks, settings)


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "max_time": (),
    "bad_words_ids": ([],),
    "sequence_bias": ({}, []),
    "suppress_tokens": ([],),
    "begin_suppress_tokens": ([],),
    "forced_eos_token_id": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1,),
    "watermarking_config": (),
}
"""Settings that reach greedy decoding, each with the values that change nothing; None never does."""


def greedy_settings(generation_config: Any) -> dict[str, Any]:
    """The settings in effect that change greedy decoding, as plain values; empty for most checkpoints."""
    found = {name: _plain(getattr(generation_config, name, None)) for name in NEUTRAL}
    return {name: value for name, value in found.items() if value is not None and value not in NEUTRAL[name]}


def _plain(value: Any) -> Any:
    """The value as a page of JSON gives it back, so that a record read again equals a fresh one."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(inner) for key, inner in value.items()}
        # biases by token sequence
        return sorted([_plain(key), _plain(inner)] for key, inner in value.items())
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
