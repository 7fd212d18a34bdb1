"""Which model it is: facts of its configuration, its tokenizer, and one vector of sampled weights. Never its name.

A checkpoint may be loaded or saved again as float32, bfloat16 or float16, and each rounds in its own way. So weights are
compared on bfloat16's grid: two values agree if they are at most one step of the grid apart, or both so small that float16
would have rounded the difference away. A converted copy agrees; other weights do not. `families.identity` makes the key.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.files.artifacts import sha256_json

NAMED_SETTINGS = 4
"""Differing settings that a message names before it counts the rest."""
SAMPLES = 8
"""Values of each tensor in the vector; all of a smaller one."""
TINY, HALF_STEP = 2.0**-14, 2.0**-24
"""Of float16: its smallest normal number, and the distance of the numbers below it."""

Sampled = tuple[NDArray[np.float32], int]
"""Some values of a weight, and how many it has."""


@dataclass(frozen=True)
class ModelKey:
    """What a table, a calibration and a run record of their model.

    Attributes:
        model_id: Name or folder; never compared, since a renamed copy is the same model.
        weights: How many tensors and numbers there are, and the sampled vector, active adapters included.
        adapters: Active adapters with the scales they have in the layers.
        tokenizer: Hash of the vocabulary.
        images: Settings of the image processor, and its backend.
        config: Settings of the model's configuration that shape what it computes.
    """

    model_id: str
    revision: str | None
    architecture: str
    blocks: int
    vocab_size: int
    weights: dict[str, Any]
    adapters: dict[str, list[float]]
    tokenizer: str
    images: dict[str, Any]
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a record."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """Return plain values for a record that is compared as a whole: the weights are one hash."""
        return {**self.to_json(), "weights": sha256_json(self.weights)}

    def missing(self, record: Mapping[str, Any]) -> list[str]:
        """List what a recorded key lacks for a comparison with this one."""
        mine = self.to_json()
        optional = {"adapters", *(name for name in ("tokenizer", "images") if not mine[name])}
        return [
            name
            for name in mine
            if name not in ("model_id", "revision")
            and (type(record.get(name)) is not type(mine[name]) or not (record[name] or name in optional))
        ]

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """Describe how this model differs from a recorded one; empty for the same model."""
        return differences(record, self.to_json(), sides=("table", "model"))


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, sides: tuple[str, str]) -> list[str]:
    """Describe how two recorded keys differ, naming both sides.

    A tokenizer or image processor that one side does not have is not compared. Of the configuration, settings that both
    sides have are compared: versions of transformers add others.
    """

    def both(mine: Any, theirs: Any) -> str:
        return f"{sides[0]} {mine}, {sides[1]} {theirs}"

    found = [
        f"{name.replace('_', ' ')}: {both(one[name], other[name])}"
        for name in ("architecture", "blocks", "vocab_size")
        if one[name] != other[name]
    ]
    found += weight_differences(one["weights"], other["weights"], sides)
    if one["adapters"] != other["adapters"]:
        found.append(f"adapters: {both(*(_adapter_words(side['adapters']) for side in (one, other)))}")
    if one["tokenizer"] != other["tokenizer"] and one["tokenizer"] and other["tokenizer"]:
        found.append(f"tokenizer: {both(one['tokenizer'][:12], other['tokenizer'][:12])}")
    for title, name in (("the image processor's", "images"), ("the configuration's", "config")):
        mine, theirs = dict(flat(one[name])), dict(flat(other[name]))
        keys = mine.keys() & theirs.keys() if name == "config" else mine.keys() | theirs.keys()
        differing = (
            [key for key in sorted(keys) if mine.get(key) != theirs.get(key)] if mine and theirs else []
        )
        found += [
            f"{title} {key}: {both(mine.get(key, 'not set'), theirs.get(key, 'not set'))}"
            for key in differing[:NAMED_SETTINGS]
        ]
        if len(differing) > NAMED_SETTINGS:
            found.append(f"{len(differing) - NAMED_SETTINGS} more of {title} settings")
    return found


def weight_differences(one: Mapping[str, Any], other: Mapping[str, Any], sides: tuple[str, str]) -> list[str]:
    """Say whether two models differ in their tensors or in sampled values."""
    shapes = [
        f"{side.get('tensors', 0):,} tensors of {side.get('numbers', 0):,} numbers" for side in (one, other)
    ]
    if shapes[0] != shapes[1]:
        return [f"weights: {sides[0]} {shapes[0]}, {sides[1]} {shapes[1]}"]
    apart = ~agree(_values(one), _values(other))
    return [f"{apart.sum():,} of {apart.size:,} sampled weights differ"] if apart.any() else []


def weights_of(samples: Mapping[str, Sampled]) -> dict[str, Any]:
    """Return what a key keeps of the weights, from some values of each."""
    ordered = [samples[name] for name in sorted(samples)]
    values = np.concatenate([np.zeros(0, np.float32), *(one[:SAMPLES] for one, _ in ordered)])
    packed = base64.b64encode(to_grid(values).astype("<u2").tobytes()).decode()
    return {"tensors": len(ordered), "numbers": sum(size for _, size in ordered), "sample": packed}


def to_grid(values: NDArray[Any]) -> NDArray[np.uint16]:
    """Round to bfloat16, ties to even, and return its bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    nan = np.uint64(0x7FC0)
    return np.where(np.isnan(values), nan, rounded).astype(np.uint16)


def agree(one: NDArray[np.uint16], other: NDArray[np.uint16]) -> NDArray[np.bool_]:
    """Tell for each pair of bfloat16 bits whether float copies of one number can round to both.

    >>> agree(to_grid(np.array([1.0, 1.0, 0.0])), to_grid(np.array([1.007, 1.02, 1e-8]))).tolist()
    [True, False, True]
    """
    if len(one) != len(other):
        return np.zeros(max(len(one), len(other)), dtype=bool)
    steps = np.abs(_ordinal(one) - _ordinal(other)) <= 1
    a, b = ((bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for bits in (one, other))
    with np.errstate(invalid="ignore"):
        tiny = (np.minimum(np.abs(a), np.abs(b)) <= TINY) & (np.abs(a - b) <= HALF_STEP)
    found: NDArray[np.bool_] = steps | tiny
    return found


def _ordinal(bits: NDArray[np.uint16]) -> NDArray[np.int32]:
    """Number the values of bfloat16 in their order."""
    size = (bits & 0x7FFF).astype(np.int32)
    ordered: NDArray[np.int32] = np.where(bits >> 15, -size, size)
    return ordered


def _values(weights: Mapping[str, Any]) -> NDArray[np.uint16]:
    return np.frombuffer(base64.b64decode(weights.get("sample", "")), "<u2").astype(np.uint16)


def _adapter_words(adapters: Mapping[str, list[float]]) -> str:
    words = [
        f"{name} (scale {', '.join(map(str, scales))})" if scales else name
        for name, scales in adapters.items()
    ]
    return " and ".join(words) or "none"


def flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the settings of all depths, by names joined with dots."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
