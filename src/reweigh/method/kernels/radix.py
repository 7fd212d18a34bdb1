"""The fast kernel for the CPU, compiled: ranks by counting the digits of sortable keys. Importing this module needs numba.

A key orders as its logit does, largest first. Those of float32 have three digits of 11 bits, sorted one after the other;
those of 16 bits are one digit, whose counts are the ranks already. Equal keys share the rank of the first of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from reweigh.method.kernels.base import WIDE_VOCAB, refuse_nan, term_table

u16, u32, u64 = np.uint16, np.uint32, np.uint64

DIGIT, LAST = 11, (1 << 11) - 1
"""Bits of a digit and the largest digit; the counts of one digit fit the fastest cache."""
INFINITY = {torch.float32: 0x7F800000, torch.bfloat16: 0x7F80, torch.float16: 0x7C00}
"""Bits of +inf; larger ones, ignoring the sign, are NaN."""


def add_terms(logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
    """Add the fixed-point 1/rank of all tokens, or of ``tokens``, to ``units``."""
    vocab = logits.shape[1]
    if vocab < WIDE_VOCAB:
        logits = logits.float()
    total = units if tokens is None else torch.zeros(vocab, dtype=torch.int64)
    if logits.dtype == torch.float32:
        rows, add = logits.numpy().view(u32), add_32_bits
    else:
        rows, add = logits.view(torch.int16).numpy().view(u16), add_16_bits
    if not add(rows, INFINITY[logits.dtype], term_table(vocab), total.numpy()):
        raise refuse_nan(logits)
    if tokens is not None:
        units += total[tokens]


def compiled(function: Any) -> Any:
    """Compile on first call; the next process loads the result instead, unless no cache folder is writable."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:  # numba found no place for its cache
        return njit(**options)(function)


@compiled
def add_16_bits(rows: Any, infinity: int, terms: Any, total: Any) -> bool:
    """Add the terms of rows (P, V) of 16-bit patterns to ``total`` (V,); False at a NaN."""
    key, count = np.empty(rows.shape[1], u16), np.zeros(1 << 16, u32)
    for j in range(rows.shape[0]):
        low, high = u16(0xFFFF), u16(0)
        for token in range(key.size):
            bits = rows[j, token]
            bits = u16(0) if bits == u16(0x8000) else bits  # -0 is +0
            k = u16(~(bits ^ (u16(np.int16(bits) >> 15) | u16(0x8000))))
            low, high = min(low, k), max(high, k)
            key[token] = k
            count[k] += u32(1)
        if low < 0x7FFF - infinity or high > 0x8000 + infinity:
            return False
        first = u32(1)
        for used in range(low, np.int64(high) + 1):  # counts become the rank of each key
            size = count[used]
            count[used] = first
            first += size
        for token in range(key.size):
            total[token] += terms[count[key[token]]]
        count[low : np.int64(high) + 1] = 0
    return True


@compiled
def add_32_bits(rows: Any, infinity: int, terms: Any, total: Any) -> bool:
    """Add the terms of rows (P, V) of float32 bits to ``total`` (V,); False at a NaN."""
    vocab = rows.shape[1]
    key, items, other = np.empty(vocab, u32), np.empty(vocab, u64), np.empty(vocab, u64)
    place = np.empty((3, LAST + 1), u32)
    latest, term = np.empty(LAST + 1, u32), np.empty(LAST + 1, np.int64)
    for j in range(rows.shape[0]):
        if not places(rows[j], infinity, key, place):
            return False
        for token in range(vocab):  # an item holds a key and its token
            k = key[token]
            p = place[0, k & u32(LAST)]
            place[0, k & u32(LAST)] = p + u32(1)
            items[p] = (u64(k) << u64(32)) | u64(token)
        for i in range(vocab):
            item = items[i]
            digit = (item >> u64(32 + DIGIT)) & u64(LAST)
            p = place[1, digit]
            place[1, digit] = p + u32(1)
            other[p] = item
        latest[:] = 0  # the key of a NaN, hence of no item
        for i in range(vocab):  # by the highest digit an item need not move: its place is its rank
            item = other[i]
            k, digit = u32(item >> u64(32)), item >> u64(32 + 2 * DIGIT)
            p = place[2, digit] + u32(1)
            place[2, digit] = p
            own = term[digit] if latest[digit] == k else terms[p]
            latest[digit], term[digit] = k, own
            total[item & u64(0xFFFFFFFF)] += own
    return True


@compiled
def places(row: Any, infinity: int, key: Any, place: Any) -> bool:
    """Write the keys of a row, and for each digit the place of its first item; False if the row holds NaN."""
    place[:] = 0
    largest = u32(0)
    for token in range(row.size):
        bits = row[token]
        largest = max(largest, bits & u32(0x7FFFFFFF))
        bits = u32(0) if bits == u32(0x80000000) else bits  # -0 is +0
        k = u32(~(bits ^ (u32(np.int32(bits) >> 31) | u32(0x80000000))))
        key[token] = k
        place[0, k & u32(LAST)] += u32(1)
        place[1, (k >> u32(DIGIT)) & u32(LAST)] += u32(1)
        place[2, k >> u32(2 * DIGIT)] += u32(1)
    for d in range(3):
        start = u32(0)
        for digit in range(LAST + 1):
            size = place[d, digit]
            place[d, digit] = start
            start += size
    return bool(largest <= infinity)
