"""The batch that travels on a key-value cache: it follows when the cache's rows are reordered, repeated or dropped.

It is kept on the cache itself, so it lives as long as the cached positions do, and a copied cache has a copy of it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from reweigh.runtime.sequence import Batch

BATCH = "_reweigh_batch"
"""Attribute of a cache that holds its batch."""


def batch_on(cache: Any) -> Batch | None:
    """The batch that was left on a cache."""
    return None if cache is None else vars(cache).get(BATCH)


def past_length(cache: Any, batch: Batch | None = None) -> int:
    """Columns that a cache holds; its batch, if given, spares the wait for a cache that counts them on its device."""
    if cache is None or not hasattr(cache, "get_seq_length"):
        return 0
    length = cache.get_seq_length()
    is_known = batch is not None and isinstance(length, Tensor) and vars(cache).get(BATCH) is batch
    return batch.seen if batch is not None and is_known else int(length)


def leave_batch(cache: Any, batch: Batch) -> None:
    """Leave a batch on a cache, whose rows it follows from now on."""
    vars(cache)[BATCH] = batch
    if not isinstance(cache, _Followed):
        kind: Any = type(cache)
        cache.__class__ = _followed(kind)


class _Followed:
    """Mixed into the cache's class."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        vars(self)[BATCH].reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        rows = _row_numbers(self, indices)
        super().batch_select_indices(indices)  # type: ignore[misc]
        vars(self)[BATCH].reorder(rows)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        vars(self)[BATCH].repeat(repeats)


def _row_numbers(cache: Any, indices: Any) -> Tensor:
    """The numbers of chosen rows, which may be given as such, from the end, or as a mask."""
    rows = torch.as_tensor(indices)
    if rows.dtype == torch.bool:
        return rows.nonzero().flatten()
    counts = (
        len(layer.keys) for layer in getattr(cache, "layers", ()) if getattr(layer, "keys", None) is not None
    )
    count = next(counts, None)
    return rows if count is None else rows % count


@functools.cache
def _followed(kind: Any) -> Any:
    return type(kind.__name__, (_Followed, kind), {"__module__": kind.__module__})
