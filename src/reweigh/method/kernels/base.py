"""What a rank kernel is: fixed-point terms, threads, and the refusal of NaN. Knows no algorithm.

A term 1/rank is held as the integer ``rint(2**40 / rank)``, so sums are exact and forget the order of their terms: integer
addition commutes bit for bit, whatever the order of rows, chunks, threads, devices or merges. The price is an error of at
most 2**-41 (4.6e-13) per term, hence also of their mean; an int64 holds the sum of 2**23 (8.4 million) positions.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.errors import NumericsError

LOGIT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)

WIDE_VOCAB = 8192
"""From this vocabulary on, a 65,536-bin histogram per row is cheaper than sorting 16-bit logits."""

FRACTION_BITS = 40
ONE = float(2**FRACTION_BITS)
MOST_POSITIONS = 2 ** (63 - FRACTION_BITS) - 1

WORTH_A_THREAD = 1 << 20
"""Logits below which starting a thread costs more than it saves."""


class Kernel(NamedTuple):
    """Adds the fixed-point reciprocal ranks of some positions to an accumulator.

    Attributes:
        name: The name a user forces it by.
        add: Adds the terms of contiguous logits (P, V) to int64 units: (V,), or (R,) if tokens (R,) are given. All are on
            one device. NaN on the CPU raises NumericsError; what the units hold after that is undefined.
        has_threads: Whether it uses several threads by itself.
    """

    name: str
    add: Callable[[Tensor, Tensor | None, Tensor], None]
    has_threads: bool = False


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


@lru_cache(maxsize=8)
def term_table(vocab: int) -> npt.NDArray[np.int64]:
    """Return fixed-point 1/rank by rank, 0..vocab; entry 0 is unused. Read-only, since every thread shares it."""
    ranks = np.arange(vocab + 1, dtype=np.float64)
    ranks[0] = 1.0
    table: npt.NDArray[Any] = np.rint(ONE / ranks).astype(np.int64)
    table.setflags(write=False)
    return table


def add_in_threads(kernel: Kernel, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
    """Let a kernel add blocks of the rows of ``logits``, as many as torch may use threads.

    Each thread adds to integers of its own, so their number changes nothing.
    """
    logits = logits.detach().contiguous()
    if not logits.shape[0] or not units.numel():
        if logits.is_cpu and torch.isnan(logits).any():  # nothing to rank, but NaN is refused all the same
            raise refuse_nan(logits)
        return
    threads = min(torch.get_num_threads(), logits.shape[0], logits.numel() // WORTH_A_THREAD)
    if kernel.has_threads or threads < 2:
        kernel.add(logits, tokens, units)
        return
    blocks = torch.tensor_split(logits, threads)
    shares = [torch.zeros_like(units) for _ in blocks]
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(lambda rows, share: kernel.add(rows, tokens, share), blocks, shares):
                pass
    except NumericsError:  # a block knows its own rows only; the error names the row among all of them
        raise refuse_nan(logits) from None
    for share in shares:
        units += share
