"""The optional fast kernel: compiled rows for float32 and 16-bit logits. Importing this module needs numba.

float32: one idea carries both ways to rank, a monotone map of the logits to integers.
``bucket = clamp(int((top - z) * scale))`` never decreases as z falls, because a floating-point subtraction, product,
truncation and clamp never do. So any ``top`` and ``scale`` give exact results; they come from a sample of the row, and only
the speed depends on them. Logits that share a bucket are ordered by their own bits.

* All tokens: a two-pass counting sort by bucket, then an insertion sort of the few neighbours out of order.
* Registered tokens: a histogram of buckets counts the larger logits in other buckets; the logits that share a bucket
  with a registered token, and only those, are gathered and compared.

Where the buckets of a row are too crowded (wild outliers, clusters), a full radix sort of the bits takes over.

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
"""Moves or comparisons per token of the vocabulary beyond which a row is radix-sorted instead."""
PATIENCE = 15
"""Rows that are radix-sorted outright after a crowded one: the rows of an image resemble each other."""
GROUP = 8
ID_BITS = 20
LARGEST_VOCAB = 1 << ID_BITS
SIGN = 0x80000000
INFINITY = 0x7F800000
HALF = 32
BINS = 1 << 16
BLOCK = 128


class NumbaKernel:
    """Compiled kernel for the CPU; compiles on first use and then loads from numba's cache."""

    name = "numba"
    has_threads = False

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        vocab = logits.shape[1]
        logits = narrowed(logits)
        if logits.dtype != torch.float32 and vocab >= WIDE_VOCAB:
            bits = logits.view(torch.int16).numpy()
            wanted = np.empty(0, np.int64) if tokens is None else tokens.numpy()
            infinity = INFINITY_BITS[logits.dtype]
            bad = add_by_counting(bits, wanted, infinity, term_table(vocab), units.numpy())
        elif vocab > LARGEST_VOCAB:  # ids would not fit beside the keys
            NumpyKernel().add(logits, tokens, units)
            return
        elif tokens is None or tokens.numel() > MANY * vocab:
            total = units if tokens is None else torch.zeros(vocab, dtype=torch.int64)
            rows = logits.float().numpy()
            # bits of a pass, so few that its table fits the cache
            digit = 8 if vocab < 4096 else 10 if vocab < 65536 else 11
            bad = add_all(rows, digit, term_table(vocab), total.numpy())
            if tokens is not None:
                units += total[tokens]
        else:
            buckets = min(65536, max(1024, 1 << (vocab - 1).bit_length() - 1))  # about one per logit
            bad = add_registered(
                logits.float().numpy(), tokens.numpy(), buckets, term_table(vocab), units.numpy()
            )
        if bad >= 0:
            raise refuse_nan(logits)


def compiled(function: F) -> F:
    """Compile on first call; the next process loads the result instead, unless no cache folder is writable."""
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # numba found no place for its cache
        return njit(**options)(function)  # type: ignore[no-any-return]


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
        return f32(0), f32(0)
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
def quantise(row: Any, top: Any, scale: Any, last: Any, bucket: Any) -> None:
    """Map a row to buckets 0..last, the largest logit first. NaN goes to ``last``: look for it there."""
    for i in range(row.size):
        distance = (top - row[i]) * scale
        distance = f32(0) if distance < f32(0) else distance
        bucket[i] = np.int32(distance if distance < last else last)


@compiled
def descending_keys(bits: Any, key: Any) -> None:
    """Map float bits to uint32 whose ascending order is the descending order of the values; -0 is +0."""
    for i in range(bits.size):
        x = bits[i]
        x = u32(0) if x == u32(SIGN) else x
        key[i] = ~(x ^ (u32(np.int32(x) >> 31) | u32(SIGN)))


@compiled
def sort_by_bucket(bucket: Any, key: Any, digit: int, first: Any, second: Any) -> bool:
    """Sort (key, id) into ``second`` by bucket, in two passes of ``digit`` bits; False if too crowded."""
    size = 1 << digit
    mask, shift = u32(size - 1), u32(digit)
    low, high = np.zeros(size, u32), np.zeros(size, u32)
    for i in range(bucket.size):
        x = bucket[i]
        low[x & mask] += u32(1)
        high[x >> shift] += u32(1)
    starts(low)
    starts(high)
    for i in range(bucket.size):
        x = bucket[i]
        p = low[x & mask]
        low[x & mask] = p + u32(1)
        first[p] = (u64(key[i]) << u64(HALF)) | u64((x >> shift) << u32(ID_BITS)) | u64(i)
    for i in range(bucket.size):
        x = first[i]
        d = (x & u64(0xFFFFFFFF)) >> u64(ID_BITS)
        p = high[d]
        high[d] = p + u32(1)
        second[p] = x
    return mend(second)


@compiled
def starts(counts: Any) -> None:
    """Turn counts into the first position of each bin."""
    total = u32(0)
    for t in range(counts.size):
        count = counts[t]
        counts[t] = total
        total += count


@compiled
def mend(items: Any) -> bool:
    """Insertion sort by key of items that are nearly in order; False once it has moved too many."""
    left = CROWDED * items.size
    largest = u64(0)
    for p in range(items.size):
        key = items[p] >> u64(HALF)
        if key < largest:
            item = items[p]
            r = p
            while r > 0 and (items[r - 1] >> u64(HALF)) > key:
                items[r] = items[r - 1]
                r -= 1
            items[r] = item
            left -= p - r
            if left < 0:
                return False
        else:
            largest = key
    return True


@compiled
def sort_by_bits(key: Any, first: Any, second: Any) -> None:
    """Sort (key, id) into ``second`` by all 32 bits of the key: three counting passes, whatever the values are."""
    count = np.zeros((3, 2048), u32)
    for i in range(key.size):
        k = key[i]
        first[i] = (u64(k) << u64(HALF)) | u64(i)
        count[0, k & u32(2047)] += u32(1)
        count[1, (k >> u32(11)) & u32(2047)] += u32(1)
        count[2, k >> u32(22)] += u32(1)
    source, target = first, second
    for d in range(3):
        position = count[d]
        starts(position)
        shift = u64(HALF + 11 * d)
        for i in range(key.size):
            x = source[i]
            digit = (x >> shift) & u64(2047)
            p = position[digit]
            position[digit] = p + u32(1)
            target[p] = x
        source, target = target, source


@compiled
def sort_row(row: Any, bits: Any, digit: int, bucket: Any, key: Any, first: Any, second: Any) -> bool:
    """Sort a row into ``second``, descending, as (key, id); True if crowded. ``digit`` 0 sorts by bits."""
    descending_keys(bits, key)
    if digit > 0:
        last = (1 << (2 * digit)) - 1
        top, scale = span(row, last + 1)
        quantise(row, top, scale, f32(last), bucket)
        if sort_by_bucket(bucket, key, digit, first, second):
            return False
    sort_by_bits(key, first, second)
    return digit > 0


@compiled
def nan_at_an_end(items: Any) -> bool:
    """Whether sorted (key, id) items hold NaN: its keys lie beyond those of the infinities."""
    smallest, largest = items[0] >> u64(HALF), items[items.size - 1] >> u64(HALF)
    return bool(smallest < u64(SIGN - 1 - INFINITY) or largest > u64(SIGN + INFINITY))


@compiled
def add_all(logits: Any, digit: int, terms: Any, total: Any) -> int:
    """Add the terms of every token of ``logits`` (P, V) to ``total`` (V,); the row with a NaN, or -1."""
    rows, vocab = logits.shape
    all_bits = logits.view(u32)
    bucket, key = np.empty(vocab, u32), np.empty(vocab, u32)
    first, second = np.empty(vocab, u64), np.empty(vocab, u64)
    wait = 0
    for j in range(rows):
        wait -= 1
        if sort_row(logits[j], all_bits[j], digit if wait < 0 else 0, bucket, key, first, second):
            wait = PATIENCE
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
def add_registered(logits: Any, tokens: Any, buckets: int, terms: Any, total: Any) -> int:
    """Add the terms of ``tokens`` (R,) to ``total`` (R,); the row with a NaN, or -1."""
    rows, vocab = logits.shape
    all_bits = logits.view(u32)
    bucket, rank = np.empty(vocab, u32), np.empty(max(vocab, tokens.size), u32)
    count, end = np.empty(buckets + 1, u32), np.empty(buckets, u32)
    listed, group = np.empty(vocab + 1, u32), np.empty(vocab + GROUP, f32)
    wait = 0
    for j in range(rows):
        row = logits[j]
        wait -= 1
        if wait < 0:
            top, scale = span(row, buckets)
            quantise(row, top, scale, f32(buckets - 1), bucket)
            gather_shared(row, tokens, bucket, count, end, listed, group)
            if count[buckets] > count[buckets - 1] and has_nan(all_bits[j]):
                return j
            if ranks_by_counting(row, tokens, bucket, count, end, group, rank):
                for r in range(tokens.size):
                    total[r] += terms[rank[r]]
                continue
            wait = PATIENCE
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
