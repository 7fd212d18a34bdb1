"""Signatures of weights: a few values of a tensor as a short text, and whether two can be copies of one tensor.

A checkpoint may be loaded, or saved again, as float32, bfloat16 or float16, and each rounds in its own way, so no hash of
rounded values is the same in all of them. A signature therefore keeps sampled values exactly, in the smallest type that
holds them; two agree if both could be roundings of one tensor. Equal types must agree to the bit, so nothing is
forgiven that one rounding does not explain; a copy that was rounded to float16 first and to bfloat16 then may not agree
with one that was rounded to bfloat16 at once. Knows nothing of models.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
    """The signature of each weight, by name."""
    return {name: sign(values, shape) for name, (values, shape) in samples.items()}


def sign(values: Tensor, shape: tuple[int, ...]) -> str:
    """The signature of a tensor of ``shape`` from a sample of its values: ``"bfloat16 4096x4096 <base64>"``."""
    if values.dtype in FLOATS:
        kind, data = _packed(values.to(torch.float32).numpy())
    else:
        kind = str(values.dtype).removeprefix("torch.")
        raw = values.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        data = raw[:BYTES]
    return " ".join((kind, "x".join(map(str, shape)) or "scalar", base64.b64encode(data).decode()))


def kind_and_shape(signature: str) -> tuple[str, str]:
    """What a signature says besides values: the smallest type that holds them, or the packed type, and the shape."""
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
    """For each pair of values whether some number rounds to both, each in its own type."""
    allowed = np.zeros_like(a)
    tiny = np.minimum(np.abs(a), np.abs(b)) <= SMALLEST_NORMAL
    for values in (a, b):
        if _on_float16(values.astype(np.float32)):
            allowed += np.where(tiny, HALF_STEP, 0.0)
    grids = _grid(kind_a, a), _grid(kind_b, b)
    if grids[0] != grids[1]:
        allowed += _rounding(grids[0], a) + _rounding(grids[1], b)
    elif kind_a != kind_b:  # float16 on the grid of bfloat16, which its tiny values cannot show
        allowed += np.where(tiny, _rounding(kind_a, a) + _rounding(kind_b, b), 0.0)
    with np.errstate(invalid="ignore"):
        near: NDArray[np.bool_] = np.isfinite(a) & (np.abs(a - b) <= allowed)
    same: NDArray[np.bool_] = (a == b) | (np.isnan(a) & np.isnan(b))
    return near | same


def _grid(kind: str, values: NDArray[np.float64]) -> str:
    """The coarsest type through which the values may have gone.

    A bfloat16 copy that is loaded as float16 loses bits of its very small values only.
    """
    if kind == "float16":
        normal = values[np.abs(values) >= SMALLEST_NORMAL]
        if len(normal) and _on_bfloat16(normal.astype(np.float32)).all():
            return "bfloat16"
    return kind


def _rounding(kind: str, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The largest distance of a number to the value that it is rounded to."""
    bits = BITS[kind]
    if bits == 0:
        return np.zeros_like(values)
    exponent = np.frexp(values)[1] - 1
    if kind == "float16":
        exponent = np.maximum(exponent, -14)
    half: NDArray[np.float64] = np.ldexp(1.0, exponent - bits)
    return half


def _packed(values: NDArray[np.float32]) -> tuple[str, bytes]:
    """The smallest type that holds the values exactly, and as many of them in it as a signature keeps."""
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
