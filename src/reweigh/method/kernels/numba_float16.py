"""Exact ranks of bfloat16 and float16 rows, compiled: a histogram of all bit patterns, with nothing to refine.

Most of the 65,536 bins stay empty, so they are summed in blocks, and empty blocks are skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reweigh.method.kernels.compile import compiled

u16, u32 = np.uint16, np.uint32

BINS = 1 << 16
BLOCK = 128


@compiled
def ascending_keys(bits: Any, key: Any) -> Any:
    """Map int16 bit patterns to uint16 in the order of their values, -0 as +0; the smallest and largest key."""
    low, high = u16(BINS - 1), u16(0)
    for i in range(bits.size):
        x = np.int16(0) if bits[i] == np.int16(-32768) else bits[i]
        x = x ^ ((x >> np.int16(15)) & np.int16(32767))
        k = u16(x) ^ u16(32768)
        key[i] = k
        low = min(low, k)
        high = max(high, k)
    return low, high


@compiled
def terms_by_key(count: Any, low: Any, high: Any, terms: Any, term: Any) -> None:
    """Write the fixed-point 1/rank of each key that occurs to ``term``, and clear the counts."""
    larger, vocab = 0, terms.size - 1
    for block in range(high // BLOCK, low // BLOCK - 1, -1):
        bins = count[block * BLOCK : (block + 1) * BLOCK]
        inside = u32(0)
        for x in range(BLOCK):
            inside += bins[x]
        if inside == u32(0):
            continue
        for x in range(BLOCK - 1, -1, -1):
            term[block * BLOCK + x] = terms[min(larger + 1, vocab)]  # of no meaning where the bin is empty
            larger += bins[x]
            bins[x] = 0


@compiled
def add_by_counting(bits: Any, tokens: Any, infinity: int, terms: Any, total: Any) -> int:
    """Add the terms of ``tokens`` (R,), of all if there are none, to ``total``; the row with a NaN, or -1."""
    rows, vocab = bits.shape
    key = np.empty(vocab, u16)
    count, term = np.zeros(BINS, u32), np.empty(BINS, np.int64)
    for j in range(rows):
        low, high = ascending_keys(bits[j], key)
        if high > 32768 + infinity or low < 32767 - infinity:
            return j
        for i in range(vocab):
            count[key[i]] += u32(1)
        terms_by_key(count, np.int64(low), np.int64(high), terms, term)
        if tokens.size == 0:
            for i in range(vocab):
                total[i] += term[key[i]]
        else:
            for r in range(tokens.size):
                total[r] += term[key[tokens[r]]]
    return -1
