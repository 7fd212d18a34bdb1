"""Reciprocal ranks in fixed point, so that their sums are exact and forget the order of their terms.

A term 1/rank is held as the integer ``rint(2**40 / rank)``. Integer addition commutes bit for bit, whatever
the order of rows, chunks, threads, devices or merges. The price is an error of at most 2**-41 (4.6e-13) per
term, hence also of their mean; an int64 holds the sum of 2**23 (8.4 million) positions.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

FRACTION_BITS = 40
ONE = float(2**FRACTION_BITS)
MOST_POSITIONS = 2 ** (63 - FRACTION_BITS) - 1


@lru_cache(maxsize=8)
def term_table(vocab: int) -> npt.NDArray[np.int64]:
    """Fixed-point 1/rank by rank, 0..vocab; entry 0 is unused. Read-only, since every thread shares it."""
    ranks = np.arange(vocab + 1, dtype=np.float64)
    ranks[0] = 1.0
    table: npt.NDArray[Any] = np.rint(ONE / ranks).astype(np.int64)
    table.setflags(write=False)
    return table
