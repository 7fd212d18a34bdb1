"""Counted bins: multisets of positive float32 values, kept as counts over the leading bits of the values.

Positive floats are ordered as their bit patterns are, so all floats that share their leading bits are an interval: a bin. An
owner of more bins than its limit drops trailing bits, the fewest that suffice. What is left is a function of its multiset
alone, so that any cut, order and bracketing of merges gives the same arrays. An owner of few distinct values drops none and
stays exact. Pure NumPy; knows neither tokens nor images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Limit = Callable[[Ints], Ints]
"""The most bins that each of some owners may have."""

PATTERN = 32
"""Bits of a value; a shift is how many trailing ones are dropped."""


@dataclass(frozen=True)
class Bins:
    """Counts of many owners.

    Attributes:
        owner: (T,) owners, ascending.
        shift: (T,) trailing bits that each has dropped; none means that its values are all there.
        size: (T,) how many bins each has.
        edge: (N,) bit pattern of the least float of each bin, ascending within an owner.
        count: (N,) how many values lie in it.
    """

    owner: Ints
    shift: NDArray[np.uint8]
    size: Ints
    edge: NDArray[np.uint32]
    count: Ints

    def __len__(self) -> int:
        return len(self.owner)

    def equals(self, other: Bins) -> bool:
        """Whether both hold the same numbers."""
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ARRAYS)

    def rows(self) -> Ints:
        """(N,) the index of each bin's owner among the owners."""
        return np.repeat(np.arange(len(self)), self.size)

    def chosen(self, keep: NDArray[np.bool_]) -> Bins:
        """Those of some owners."""
        rows = keep[self.rows()]
        return Bins(self.owner[keep], self.shift[keep], self.size[keep], self.edge[rows], self.count[rows])

    def problem(self, limit: Limit) -> str | None:
        """Why these cannot be counted bins of positive floats, or ``None``."""
        kinds = {"owner": "int64", "shift": "uint8", "size": "int64", "edge": "uint32", "count": "int64"}
        if any(getattr(self, name).dtype != kind for name, kind in kinds.items()):
            return "its columns have other types than those that are written"
        owners, bins = self.owner.shape, self.edge.shape
        if not (self.shift.shape == self.size.shape == owners and self.count.shape == bins):
            return "its columns have different lengths"
        if len(owners) != 1 or len(bins) != 1 or (self.size < 1).any() or int(self.size.sum()) != bins[0]:
            return "its columns have different lengths"
        if (np.diff(self.owner) <= 0).any() or (self.shift >= PATTERN).any():
            return "its owners are not in order"
        rows = self.rows()
        key = _joined(rows, self.edge)
        if (key[1:] <= key[:-1]).any():
            return "its bins are not in order"
        if (self.edge & ~_mask(self.shift)[rows]).any():
            return "a bin is not at the edge its owner's bits allow"
        if (self.count < 1).any():
            return "a count is not positive"
        return "an owner has more bins than it may" if (self.size > limit(self.owner)).any() else None


ARRAYS = ("owner", "shift", "size", "edge", "count")


def count_bins(owner: Ints, values: NDArray[np.float32], count: Ints, limit: Limit) -> Bins:
    """Count values, each of which occurred so often, for their owners."""
    owners, rows = np.unique(owner, return_inverse=True)
    patterns = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return _counted(owners, np.zeros(len(owners), np.uint8), rows, patterns, count, limit)


def merge_bins(parts: Sequence[Bins], limit: Limit) -> Bins:
    """Add bins up; the result depends on what was counted and on nothing else."""
    everyone = np.concatenate([part.owner for part in parts])
    owners, index = np.unique(everyone, return_inverse=True)
    shift = np.zeros(len(owners), np.uint8)
    np.maximum.at(shift, index, np.concatenate([part.shift for part in parts]))
    starts = np.cumsum([0, *(len(part) for part in parts)])
    rows = np.concatenate([index[start + part.rows()] for start, part in zip(starts, parts, strict=False)])
    edges = np.concatenate([part.edge for part in parts])
    counts = np.concatenate([part.count for part in parts])
    return _counted(owners, shift, rows, edges, counts, limit)


def drop_bits(bins: Bins, least: Ints, limit: Limit) -> Bins:
    """The same values with at least so many trailing bits of each owner dropped."""
    return merge_bins([replace(bins, shift=np.maximum(bins.shift, least).astype(np.uint8))], limit)


def _counted(
    owners: Ints,
    shift: NDArray[np.uint8],
    rows: Ints,
    edge: NDArray[np.uint32],
    count: Ints,
    limit: Limit,
) -> Bins:
    """Bins of owners that have dropped ``shift`` bits at least, and drop more where they have too many."""
    rows, edge, count = _added(rows, edge & _mask(shift)[rows], count)
    needed = np.maximum(shift, _needed(rows, edge, limit(owners)))
    if (needed > shift).any():
        rows, edge, count = _added(rows, edge & _mask(needed)[rows], count)
    size = np.bincount(rows, minlength=len(owners)).astype(np.int64)
    return Bins(owners.astype(np.int64), needed, size, edge, count)


def _added(rows: Ints, edge: NDArray[np.uint32], count: Ints) -> tuple[Ints, NDArray[np.uint32], Ints]:
    """Equal bins of an owner made one, in order."""
    key = _joined(rows, edge)
    order = np.argsort(key, kind="stable")
    key = key[order]
    starts = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, np.int64)
    sums = np.add.reduceat(count[order].astype(np.int64), starts) if len(key) else count.astype(np.int64)
    return rows[order][starts], edge[order][starts], sums


def _needed(rows: Ints, edge: NDArray[np.uint32], limit: Ints) -> NDArray[np.uint8]:
    """The fewest trailing bits that each owner must drop to have no more bins than its limit.

    Neighbours become one bin when the highest bit in which they differ is dropped, so the limit-th highest of these decides.
    """
    size = np.bincount(rows, minlength=len(limit))
    found = np.zeros(len(limit), np.uint8)
    over = size > limit
    if not over.any():
        return found
    same = (rows[1:] == rows[:-1]) & over[rows[1:]]
    owner = rows[1:][same]
    highest = np.frexp((edge[1:][same] ^ edge[:-1][same]).astype(np.float64))[1]  # 1 + that bit, exactly
    order = np.lexsort((-highest, owner))
    first = np.searchsorted(owner, np.flatnonzero(over))  # owners ascend, so sorting moves none
    found[over] = highest[order][first + limit[over] - 1]
    return found


def _joined(rows: Ints, edge: NDArray[np.uint32]) -> NDArray[np.uint64]:
    joined: NDArray[np.uint64] = (rows.astype(np.uint64) << np.uint64(PATTERN)) | edge
    return joined


def _mask(shift: NDArray[Any]) -> NDArray[np.uint32]:
    """Patterns whose trailing bits are dropped."""
    return (~((np.uint64(1) << shift.astype(np.uint64)) - np.uint64(1))).astype(np.uint32)
