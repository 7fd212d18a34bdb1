"""What a rank kernel is, and the refusal of NaN they all share. Knows no algorithm."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from reweigh.errors import NumericsError

LOGIT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

INFINITY_BITS = {torch.bfloat16: 0x7F80, torch.float16: 0x7C00}
"""Bit pattern of +inf; larger patterns, the sign aside, are NaN."""

WIDE_VOCAB = 8192
"""From this vocabulary on, a 65,536-bin histogram per row is cheaper than sorting 16-bit logits."""


class Kernel(Protocol):
    """Adds the fixed-point reciprocal ranks of some positions to an accumulator."""

    @property
    def name(self) -> str:
        """The name a user forces it by."""

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        """Add the terms of ``logits`` (P, V) to ``units``: int64 (V,), or (R,) if ``tokens`` (R,) are given.

        All tensors are on one device, ``logits`` is contiguous, and P is at least 1. NaN on the CPU raises
        NumericsError; what ``units`` holds after that is undefined.
        """


def narrowed(logits: Tensor) -> Tensor:
    """Float32 logits that are upcast bfloat16 as bfloat16 again: the same order, by the faster kernels."""

    def is_upcast(rows: Tensor) -> bool:
        return torch.equal(rows.bfloat16().float(), rows)

    if logits.dtype == torch.float32 and is_upcast(logits[:1]) and is_upcast(logits):
        return logits.bfloat16()
    return logits


def refuse_nan(logits: Tensor) -> NumericsError:
    """Describe the NaN of ``logits`` (P, V): how many, in how many positions, and where the first is."""
    bad = torch.isnan(logits)
    positions, tokens = bad.nonzero(as_tuple=True)
    rows = int(bad.any(dim=1).sum())
    return NumericsError(
        f"{positions.numel()} of {logits.numel()} logits are NaN, in {rows} of {logits.shape[0]} positions; "
        f"the first is token {int(tokens[0])} at position {int(positions[0])} of this chunk",
        hint="a NaN has no rank; check the weights, or measure in float32 if float16 overflows",
    )
