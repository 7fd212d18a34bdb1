"""The optional fast kernel: compiled rows for float32 and 16-bit logits. Importing this module needs numba.

float32, all tokens: a radix sort of (key, id), where the key orders as the logit does; equal keys share the rank of the
first.

float32, registered tokens: a monotone map of the logits to buckets, ``clamp(int((top - z) * scale))``: it never decreases as
z falls, because a floating-point subtraction, product, truncation and clamp never do. A histogram counts the larger logits
in other buckets; the logits that share a bucket with a registered token, and only those, are gathered and compared. Any
``top`` and positive ``scale`` give exact ranks; they come from a sample of the row, and only the speed depends on them. A
row whose buckets are too crowded (wild outliers, clusters) is sorted instead.

bfloat16 and float16: a histogram of all bit patterns, with nothing to refine. Most of the 65,536 bins stay empty, so they
are summed in blocks, and empty blocks are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numba import njit
from torch import Tensor

from reweigh.method.kernels.base import (
    INFINITY_BITS,
    WIDE_VOCAB,
    narrowed,
    refuse_nan,
    term_table,
)
from reweigh.method.kernels.sorting import NumpyKernel

F = TypeVar("F", bound=Callable[..., Any])

f32, u16, u32, u64 = np.float32, np.uint16, np.uint32, np.uint64

MANY = 0.15
"""Share of the vocabulary from which ranking all tokens is faster than ranking the registered ones."""
SAMPLE = 512
CROWDED = 4
"""Comparisons per token of the vocabulary beyond which a row is sorted instead."""
GROUP = 8
HALF = 32
DIGIT = 11
"""Bits of one pass of the radix sort: three passes order 32 bits, and the table of a pass fits the cache."""
LARGEST_VOCAB = 1 << 20
"""Ids lie in the lower half of an item; a larger vocabulary is left to NumPy."""
SIGN = 0x80000000
INFINITY = 0x7F800000
BINS = 1 << 16
BLOCK = 128


class NumbaKernel:
    """Compiled kernel for the CPU; compiles on first use and then loads from numba's cache."""

    name = "numba"
    has_threads = False

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        vocab = logits.shape[1]
        logits = narrowed(logits)
        total = units if tokens is None else torch.zeros(vocab, dtype=torch.int64)
        if logits.dtype != torch.float32 and vocab >= WIDE_VOCAB:
            bits = logits.view(torch.int16).numpy()
            bad = add_by_counting(bits, INFINITY_BITS[logits.dtype], term_table(vocab), total.numpy())
        elif vocab > LARGEST_VOCAB:
            NumpyKernel().add(logits, tokens, units)
            return
        elif tokens is None or tokens.numel() > MANY * vocab:
            bits = logits.float().numpy().view(u32)
            bad = add_by_sorting(bits, term_table(vocab), total.numpy())
        else:
            buckets = min(65536, max(1024, 1 << (vocab - 1).bit_length() - 1))  # about one per logit
            rows, total = logits.float().numpy(), units
            bad = add_registered(rows, tokens.numpy(), buckets, term_table(vocab), total.numpy())
        if bad >= 0:
            raise refuse_nan(logits)
        if total is not units:
            units += total[tokens]


def compiled(function: F) -> F:
    """Compile on first call; the next process loads the result instead, unless no cache folder is writable."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no place for its cache
        return njit(**options)(function)  # type: ignore[no-any-return]


@compiled
def descending_keys(bits: Any, key: Any) -> None:
    """Map float bits to uint32 whose ascending order is the descending order of the values; -0 is +0."""
    for i in range(bits.size):
        x = bits[i]
        x = u32(0) if x == u32(SIGN) else x
        key[i] = ~(x ^ (u32(np.int32(x) >> 31) | u32(SIGN)))


@compiled
def sort_by_bits(key: Any, first: Any, second: Any) -> None:
    """Sort (key, id) into ``second`` by all 32 bits of the key: three counting passes, whatever the values are."""
    last = u32((1 << DIGIT) - 1)
    count = np.zeros((3, 1 << DIGIT), u32)
    for i in range(key.size):
        k = key[i]
        first[i] = (u64(k) << u64(HALF)) | u64(i)
        count[0, k & last] += u32(1)
        count[1, (k >> u32(DIGIT)) & last] += u32(1)
        count[2, k >> u32(2 * DIGIT)] += u32(1)
    source, target = first, second
    for d in range(3):
        position = count[d]
        total = u32(0)
        for t in range(position.size):  # counts become the first position of each digit
            own = position[t]
            position[t] = total
            total += own
        shift = u64(HALF + DIGIT * d)
        for i in range(key.size):
            x = source[i]
            digit = (x >> shift) & u64(last)
            p = position[digit]
            position[digit] = p + u32(1)
            target[p] = x
        source, target = target, source


@compiled
def nan_at_an_end(items: Any) -> bool:
    """Whether sorted (key, id) items hold NaN: its keys lie beyond those of the infinities."""
    smallest, largest = items[0] >> u64(HALF), items[items.size - 1] >> u64(HALF)
    return bool(smallest < u64(SIGN - 1 - INFINITY) or largest > u64(SIGN + INFINITY))


@compiled
def add_by_sorting(bits: Any, terms: Any, total: Any) -> int:
    """Add the terms of every token to ``total`` (V,); ``bits`` (P, V) are those of float32. The row with a NaN, or -1."""
    rows, vocab = bits.shape
    key, first, second = np.empty(vocab, u32), np.empty(vocab, u64), np.empty(vocab, u64)
    for j in range(rows):
        descending_keys(bits[j], key)
        sort_by_bits(key, first, second)
        if nan_at_an_end(second):
            return j
        term, before = np.int64(0), u64(1) << u64(40)
        for p in range(vocab):
            item = second[p]
            now = item >> u64(HALF)
            term = terms[p + 1] if now != before else term
            before = now
            total[item & u64(LARGEST_VOCAB - 1)] += term
    return -1


@compiled
def span(row: Any, buckets: int) -> Any:
    """Top and scale that spread a row over ``buckets``, from the finite values of a sample, with a margin."""
    low, high = f32(np.inf), f32(-np.inf)
    for i in range(0, row.size, max(1, row.size // SAMPLE)):
        value = row[i]
        if value - value == f32(0):
            low = min(value, low)
            high = max(value, high)
    if high < low:
        return f32(0), f32(1)  # a scale of 0 would mix +inf with -inf
    margin = f32(0.3) * (high - low)
    return high + margin, f32(buckets / (np.float64(high) - np.float64(low) + 2 * np.float64(margin)))


@compiled
def has_nan(bits: Any) -> bool:
    """Whether a row, seen as uint32, holds a NaN."""
    worst = u32(0)
    for i in range(bits.size):
        worst = max(worst, bits[i] & u32(SIGN - 1))
    return bool(worst > u32(INFINITY))


@compiled
def quantize(row: Any, top: Any, scale: Any, last: Any, bucket: Any) -> None:
    """Map a row to buckets 0..last, the largest logit first. NaN goes to ``last``: look for it there."""
    for i in range(row.size):
        distance = (top - row[i]) * scale
        distance = f32(0) if distance < f32(0) else distance
        bucket[i] = np.int32(distance if distance < last else last)


@compiled
def gather_shared(row: Any, tokens: Any, bucket: Any, count: Any, end: Any, listed: Any, group: Any) -> None:
    """Count the logits by bucket, and gather those that share a bucket with a registered token into ``group``.

    Afterwards ``count[b]`` is the number of logits in buckets before b (of all buckets at the end), and ``end[b]``
    the end in ``group`` of those in bucket b; ``group`` is grouped by bucket and ends with a margin of -inf.
    """
    flag, low = u32(SIGN), u32(SIGN - 1)
    count[:] = 0
    for r in range(tokens.size):
        count[bucket[tokens[r]]] = flag
    n = u32(0)
    for i in range(row.size):
        b = bucket[i]
        c = count[b]
        count[b] = c + u32(1)
        listed[n] = i
        n += c >> u32(31)
    total, shared = u32(0), u32(0)
    for b in range(end.size):
        c = count[b]
        count[b] = total
        end[b] = shared
        total += c & low
        shared += c & low if c > low else u32(0)
    count[end.size] = total
    for x in range(n):
        i = listed[x]
        b = bucket[i]
        p = end[b]
        end[b] = p + u32(1)
        group[p] = row[i]
    for x in range(GROUP):
        group[np.int64(n) + x] = f32(-np.inf)


@compiled
def ranks_by_counting(
    row: Any, tokens: Any, bucket: Any, count: Any, end: Any, group: Any, rank: Any
) -> bool:
    """Write the ranks of ``tokens`` to ``rank`` (R,), from what ``gather_shared`` left; False if too crowded.

    A group may be read beyond its end: what follows lies in later buckets, hence is smaller and counts nothing.
    """
    left = CROWDED * row.size
    large = np.empty(tokens.size, np.int64)
    n: Any = 0
    for r in range(tokens.size):
        own = row[tokens[r]]
        b = np.int64(bucket[tokens[r]])
        size = np.int64(count[b + 1] - count[b])
        start = np.int64(end[b]) - size
        members = group[start : start + GROUP]
        larger = 0
        for x in range(GROUP):
            larger += members[x] > own
        rank[r] = u32(np.int64(count[b]) + 1 + larger)
        large[n] = r
        n += size > GROUP  # a list of exceptions costs less than a branch that is hard to predict
    for m in range(n):
        r = large[m]
        own = row[tokens[r]]
        b = np.int64(bucket[tokens[r]])
        stop = np.int64(end[b])
        start = stop - np.int64(count[b + 1] - count[b])
        left -= stop - start
        if left < 0:
            return False
        larger = 0
        for p in range(start, stop):
            larger += group[p] > own
        rank[r] = u32(np.int64(count[b]) + 1 + larger)
    return True


@compiled
def ranks_by_sorting(bits: Any, rank: Any) -> bool:
    """Write the rank of every token of one row to ``rank`` (V,); False if it holds NaN."""
    key, first, second = np.empty(bits.size, u32), np.empty(bits.size, u64), np.empty(bits.size, u64)
    descending_keys(bits, key)
    sort_by_bits(key, first, second)
    if nan_at_an_end(second):
        return False
    r, before = u32(0), u64(1) << u64(40)
    for p in range(bits.size):
        item = second[p]
        now = item >> u64(HALF)
        r = u32(p + 1) if now != before else r
        before = now
        rank[item & u64(LARGEST_VOCAB - 1)] = r
    return True


@compiled
def add_registered(logits: Any, tokens: Any, buckets: int, terms: Any, total: Any) -> int:
    """Add the terms of ``tokens`` (R,) to ``total`` (R,); the row with a NaN, or -1."""
    rows, vocab = logits.shape
    all_bits = logits.view(u32)
    bucket, rank = np.empty(vocab, u32), np.empty(max(vocab, tokens.size), u32)
    count, end = np.empty(buckets + 1, u32), np.empty(buckets, u32)
    listed, group = np.empty(vocab + 1, u32), np.empty(vocab + GROUP, f32)
    for j in range(rows):
        row = logits[j]
        top, scale = span(row, buckets)
        quantize(row, top, scale, f32(buckets - 1), bucket)
        gather_shared(row, tokens, bucket, count, end, listed, group)
        if count[buckets] > count[buckets - 1] and has_nan(all_bits[j]):
            return j
        if ranks_by_counting(row, tokens, bucket, count, end, group, rank):
            for r in range(tokens.size):
                total[r] += terms[rank[r]]
            continue
        if not ranks_by_sorting(all_bits[j], rank):
            return j
        for r in range(tokens.size):
            total[r] += terms[rank[tokens[r]]]
    return -1


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
            term[block * BLOCK + x] = terms[min(larger + 1, vocab)]  # meaningless where the bin is empty
            larger += bins[x]
            bins[x] = 0


@compiled
def add_by_counting(bits: Any, infinity: int, terms: Any, total: Any) -> int:
    """Add the terms of every token to ``total`` (V,); ``bits`` (P, V) are of 16. The row with a NaN, or -1."""
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
        for i in range(vocab):
            total[i] += term[key[i]]
    return -1
