"""What is recorded of a model, and how two records differ: weights, adapters, tokenizer and settings, never the name.

Two models are the same if no weight and no setting that shapes evidence differs. The name does not count, nor the float
type, so a renamed or converted copy is the same model. `families.identity` makes the record of a model.

A weight is recorded as a signature: a few of its values, exactly, in the smallest type that holds them. A checkpoint may be
loaded or saved again as float32, bfloat16 or float16, and each rounds in its own way, so no hash of rounded values would be
the same for all. Two signatures agree if both could be roundings of one tensor. Equal types must agree to the bit, so only
a single rounding is forgiven: a copy rounded to float16 and then to bfloat16 may not agree with one rounded to bfloat16 at
once.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.files.artifacts import sha256_json

NAMED_SETTINGS = 4
"""Differing settings that a message names before it counts the rest."""


@dataclass(frozen=True)
class Identity:
    """What a table, a calibration and a run record of their model.

    Attributes:
        model_id: Name or folder; never compared, since a renamed copy is the same model.
        weights: Signature of each parameter and persistent buffer by name, active adapters included.
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
    weights: dict[str, str]
    adapters: dict[str, list[float]]
    tokenizer: str
    images: dict[str, Any]
    config: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a manifest."""
        return asdict(self)

    def summary(self) -> dict[str, Any]:
        """Return plain values for a record that is compared as a whole: the weights are one hash."""
        return {**self.to_json(), "weights": sha256_json(self.weights)}

    def missing(self, record: Mapping[str, Any]) -> list[str]:
        """List what a recorded identity lacks for a comparison with this one."""
        mine = self.to_json()
        wanted = [name for name in mine if name not in ("model_id", "revision")]
        optional = {"adapters", *(name for name in ("tokenizer", "images") if not mine[name])}
        return [
            name
            for name in wanted
            if type(record.get(name)) is not type(mine[name]) or not (record[name] or name in optional)
        ]

    def differences(self, record: Mapping[str, Any]) -> list[str]:
        """Describe how this model differs from a recorded one; empty for the same model."""
        return differences(record, self.to_json(), sides=("table", "model"))


def differences(one: Mapping[str, Any], other: Mapping[str, Any], *, sides: tuple[str, str]) -> list[str]:
    """Describe how two recorded identities differ, naming both sides.

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


def weight_differences(one: Mapping[str, str], other: Mapping[str, str], sides: tuple[str, str]) -> list[str]:
    """Count parameter tensors that one side lacks, packs or shapes differently, or whose values differ."""
    found = []
    for side, mine, theirs in ((sides[0], one, other), (sides[1], other, one)):
        if alone := [name for name in mine if name not in theirs]:
            found.append(f"only the {side} has {len(alone)} parameter tensors, e.g. {alone[0]}")
    differing = [name for name in one if name in other and not agree(one[name], other[name])]
    if differing:
        name = differing[0]
        shapes = [kind_and_shape(side[name]) for side in (one, other)]
        packed = [kind for kind, _ in shapes if not kind.endswith(("float16", "float32"))]
        detail = ""
        if shapes[0][1] != shapes[1][1] or (packed and shapes[0] != shapes[1]):
            detail = ": {} {}, {} {}".format(sides[0], " ".join(shapes[0]), sides[1], " ".join(shapes[1]))
        common = sum(name in other for name in one)
        found.append(f"{len(differing)} of {common} parameter tensors differ, e.g. {name}{detail}")
    return found


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


BYTES = 32
"""Size of the values in a signature: 8 of float32, 16 of a sixteen-bit type."""

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
SMALLEST_NORMAL = 2.0**-14
HALF_STEP = 2.0**-25
"""Of float16: its smallest normal number, and half the distance of the numbers below it."""

Sampled = tuple[Tensor, tuple[int, ...]]
"""Values of a weight, and its shape."""

BITS = {"float32": 0, "bfloat16": 8, "float16": 11}
"""Significant bits of the types that round; float32 is taken as it is."""


def signatures(samples: Mapping[str, Sampled]) -> dict[str, str]:
    """Return the signature of each weight, by name."""
    return {name: sign(values, shape) for name, (values, shape) in samples.items()}


def sign(values: Tensor, shape: tuple[int, ...]) -> str:
    """Return the signature of a tensor of ``shape`` from a sample of its values: ``"bfloat16 4096x4096 <base64>"``."""
    if values.dtype in FLOATS:
        kind, data = _packed(values.to(torch.float32).numpy())
    else:
        kind = str(values.dtype).removeprefix("torch.")
        raw = values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        data = raw[:BYTES]
    return " ".join((kind, "x".join(map(str, shape)) or "scalar", base64.b64encode(data).decode()))


def kind_and_shape(signature: str) -> tuple[str, str]:
    """Return the type (the smallest that holds the values, or the packed one) and the shape in a signature."""
    kind, _, rest = signature.partition(" ")
    return kind, rest.partition(" ")[0]


def agree(one: str, other: str) -> bool:
    """Whether two signatures can be of copies of one tensor."""
    if one == other:
        return True
    kinds, shapes = zip(kind_and_shape(one), kind_and_shape(other), strict=True)
    if shapes[0] != shapes[1] or not set(kinds) <= set(BITS):
        return False
    a, b = _values(one), _values(other)
    count = min(len(a), len(b))
    return count > 0 and bool(_could_be_one(kinds[0], a[:count], kinds[1], b[:count]).all())


def _could_be_one(
    kind_a: str, a: NDArray[np.float64], kind_b: str, b: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Tell for each pair of values whether some number rounds to both, each in its own type."""
    allowed = np.zeros_like(a)
    tiny = np.minimum(np.abs(a), np.abs(b)) <= SMALLEST_NORMAL
    for kind, values in ((kind_a, a), (kind_b, b)):
        if kind_a != kind_b:
            allowed += _rounding(kind, values)
        if _on_float16(values.astype(np.float32)):
            allowed += np.where(tiny, HALF_STEP, 0.0)
    with np.errstate(invalid="ignore"):
        near: NDArray[np.bool_] = np.isfinite(a) & (np.abs(a - b) <= allowed)
    same: NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return near | same


def _rounding(kind: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest distance of a number to the value that it is rounded to."""
    bits = BITS[kind]
    if bits == 0:
        return np.zeros_like(values)
    exponent = np.frexp(values)[1] - 1
    if kind == "float16":
        exponent = np.maximum(exponent, -14)
    half: NDArray[np.float64] = np.ldexp(1.0, exponent - bits)
    return half


def _packed(values: NDArray[np.float32]) -> tuple[str, bytes]:
    """Return the smallest type that holds the values exactly, and as many of them in it as a signature keeps."""
    bits = values.view(np.uint32)
    if _on_bfloat16(values).all():
        return "bfloat16", (bits >> 16).astype("<u2").tobytes()[:BYTES]
    if _on_float16(values):
        return "float16", values.astype("<f2").tobytes()[:BYTES]
    return "float32", values.astype("<f4").tobytes()[:BYTES]


def _on_bfloat16(values: NDArray[np.float32]) -> NDArray[np.bool_]:
    on_grid: NDArray[np.bool_] = (np.ascontiguousarray(values).view(np.uint32) & 0xFFFF) == 0
    return on_grid


def _on_float16(values: NDArray[np.float32]) -> bool:
    """Whether float16 holds every value exactly."""
    with np.errstate(over="ignore"):
        half = values.astype(np.float16).astype(np.float32)
    return np.array_equal(half.view(np.uint32), np.ascontiguousarray(values).view(np.uint32))


def _values(signature: str) -> NDArray[np.float64]:
    kind, _, text = signature.split(" ")
    data = base64.b64decode(text)
    if kind == "bfloat16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).astype(np.float64)
    kinds: dict[str, Any] = {"float16": "<f2", "float32": "<f4"}
    return np.frombuffer(data, kinds[kind]).astype(np.float64)
