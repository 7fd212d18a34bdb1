"""What belongs to the rows of a key-value cache follows when the cache's rows are reordered, repeated or dropped."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import torch
from torch import Tensor

_FOLLOWERS = "_reweigh_followers"


class Follower(Protocol):
    """Something with one entry for each row of a cache."""

    def reorder(self, rows: Tensor) -> None:
        """Take the given rows, in their order, in place of the present ones."""

    def repeat(self, times: int) -> None:
        """Have ``times`` copies of each row, side by side."""


def follow(cache: Any, follower: Follower) -> None:
    """Let ``follower`` follow the rows of ``cache``; it is kept on the instance, so a copied cache has copied ones."""
    if cache is None:
        return
    if not isinstance(cache, _Followed):
        kind: Any = type(cache)
        cache.__class__ = _followed(kind)
    followers = vars(cache).setdefault(_FOLLOWERS, [])
    if not any(one is follower for one in followers):
        followers.append(follower)


class _Followed:
    """Mixed into the cache's class."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        super().reorder_cache(beam_idx)  # type: ignore[misc]
        for follower in vars(self)[_FOLLOWERS]:
            follower.reorder(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        rows = _row_numbers(self, indices)
        super().batch_select_indices(indices)  # type: ignore[misc]
        for follower in vars(self)[_FOLLOWERS]:
            follower.reorder(rows)

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)  # type: ignore[misc]
        for follower in vars(self)[_FOLLOWERS]:
            follower.repeat(repeats)


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
