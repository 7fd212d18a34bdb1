"""The settings of a calibration and its record, the same for every engine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, UnsupportedError, require_known
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import DESCRIBE
from reweigh.job import parse_shard
from reweigh.method.lens import CHUNK, DTYPES
from reweigh.method.readouts import DMRR, READOUTS
from reweigh.method.references import rule_named
from reweigh.provenance import versions
from reweigh.tables.key import ModelKey
from reweigh.tables.point import OperatingPoint
from reweigh.tables.table import candidate_rule
from reweigh.text import Template

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
        shard: Which batches to observe, as i/n: every n-th from the i-th on.
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
        parse_shard(self.shard)


def record_of(
    settings: CalibrationSettings,
    processor: Any,
    *,
    identity: ModelKey,
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
