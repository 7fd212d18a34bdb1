"""The settings of a calibration, the same for every engine, and a loaded model tied to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

from reweigh.engines.reader import Reader
from reweigh.engines.transformers.observe import observe
from reweigh.errors import InputError, UnsupportedError, require_known
from reweigh.families.anatomy import Anatomy, find_anatomy, is_mlx
from reweigh.families.points import published_point
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.method.lens import CHUNK, DTYPES, Lens
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import rule_named
from reweigh.provenance import versions
from reweigh.shards import Shard
from reweigh.tables.identity import Identity
from reweigh.tables.observations import ImageObservations
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import candidate_rule
from reweigh.text import Template

ENGINES = "reweigh.engines"
"""Entry-point group of engines that other distributions offer."""
VLLM_BATCH = 32
"""Images per part inside vLLM: enough to fill its batch, few enough to lose when a run is stopped."""


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
        readout: How logits become evidence: the method's "dmrr", or another one for comparison.
        rule: Which tokens are registered: "stable" (the paper's), or "count-N".
        shard: Part of the images, as i/n.
    """

    layers: tuple[int, ...] | None = None
    prompt: str = DESCRIBE
    template: Template | None = None
    max_new_tokens: int = 512
    batch_size: int = 1
    dtype: str = "native"
    chunk: int = CHUNK
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
    """A model and its processor tied to the settings of a calibration."""

    model: Any
    processor: Any
    anatomy: Anatomy
    lens: Lens
    layers: tuple[int, ...]
    settings: CalibrationSettings

    engine: ClassVar[str | None] = None

    def made_with(self) -> dict[str, Any]:
        """Return what every shard of this calibration shares, and every table carries."""
        return record_of(
            self.settings,
            self.processor,
            identity=self.anatomy.identify(self.processor),
            layers=self.layers,
            lens={
                "lens": self.lens.mode,
                "dtype": self.lens.dtype,
                "chunk": self.lens.chunk,
                "rows": self.lens.rows,
            },
            generation=self.generation(),
            engine=self.engine,
        )

    def generation(self) -> dict[str, Any]:
        """Return the checkpoint's own settings that change greedy decoding."""
        return greedy_settings(self.anatomy.language_model.generation_config)

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build the model's inputs for some pictures."""
        prompts = [self.settings.prompt] * len(pictures)
        return build_inputs(self.model, self.processor, pictures, prompts, template=self.settings.template)

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""
        return observe(self.anatomy, self.reader(), keys, inputs, max_new_tokens=self.settings.max_new_tokens)

    def reader(self) -> Reader:
        """Return what reads the evidence; a matched readout keeps DMRR beside it."""
        readout = self.settings.readout
        readouts = (readout, DMRR) if READOUTS[readout].matched else (readout,)
        return Reader(self.lens, self.layers, readouts=readouts)


def record_of(
    settings: CalibrationSettings,
    processor: Any,
    *,
    identity: Identity,
    layers: Sequence[int],
    lens: Mapping[str, Any],
    generation: Mapping[str, Any],
    engine: str | None,
) -> dict[str, Any]:
    """Return what every shard of a calibration shares; ``engine`` is named if it is not transformers."""
    return {
        "identity": identity.to_json(),
        "layers": list(layers),
        **lens,
        "candidates": candidate_rule(),
        "prompt": settings.prompt,
        "prompt_sha256": prompt_hash(processor, settings.prompt, settings.template),
        "max_new_tokens": settings.max_new_tokens,
        "batch_size": settings.batch_size,
        "versions": versions(),
        **({"engine": engine} if engine else {}),
        **({"generation": generation} if generation else {}),
        **({} if settings.readout == DMRR else {"readout": settings.readout}),
    }


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
    layers = layers_to_read(settings, published_point(anatomy))
    blocks = tuple(sorted({anatomy.check_layer(layer) for layer in layers}))
    lens = anatomy.lens(dtype=settings.dtype, chunk=settings.chunk)
    return kind(model, processor, anatomy, lens, blocks, settings)


def outside_engine(name: str) -> Any:
    """Return the engine that another distribution offers for calibrations, e.g. ``reweigh-vllm``'s "vllm"."""
    for entry in entry_points(group=ENGINES, name=name):
        return entry.load()
    raise UnsupportedError(
        f"no installed package offers the engine {name}",
        hint=f"pip install reweigh-{name} in an environment of its own",
    )


def layers_to_read(settings: CalibrationSettings, published: OperatingPoint | None) -> tuple[int, ...]:
    """Return the layers asked for, else the paper's for this model, else the last."""
    if settings.layers is not None:
        return settings.layers
    return (-1,) if published is None else (published.layer,)


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
    """Return the settings in effect that change greedy decoding, as plain values; empty for most checkpoints."""
    found = {name: _plain(getattr(generation_config, name, None)) for name in NEUTRAL}
    return {name: value for name, value in found.items() if value is not None and value not in NEUTRAL[name]}


def stored_greedy_settings(
    checkpoint: str | Path, engine: str, *, known: Collection[str] = (), revision: str | None = None
) -> dict[str, Any]:
    """Read a checkpoint's settings that change greedy decoding; refuse those that ``engine`` applies differently."""
    from transformers import GenerationConfig

    try:
        found = greedy_settings(GenerationConfig.from_pretrained(checkpoint, revision=revision))
    except OSError:  # it has none
        return {}
    unknown = sorted(set(found) - set(known))
    if unknown:
        raise UnsupportedError(
            f"the checkpoint decodes greedily with {', '.join(unknown)}, which {engine} does not do as transformers does",
            hint="calibrate with the transformers engine",
        )
    return found


def _plain(value: Any) -> Any:
    """Return a value as JSON gives it back, so that a record read from a file equals a fresh one."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: _plain(inner) for key, inner in value.items()}
        # biases by token sequence
        return sorted([_plain(key), _plain(inner)] for key, inner in value.items())
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
