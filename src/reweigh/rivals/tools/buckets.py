"""The layer sets of DoLa and ReVisiT, as indices of transformers' ``hidden_states``: 0 embeddings, N the last block.

Index j of ``hidden_states`` is the input of block j; the last index, N, is read after the final norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy

DEEP = 40
"""Above so many blocks a bucket is the first or the last twenty."""


def first_index(count: int, tied: bool) -> int:
    """Where buckets begin: tied embeddings predict the input token itself, so their first states are skipped."""
    return min(2, max(0, count // 2 - 1)) if tied else 0


def bucket(name: str | Sequence[int], count: int, tied: bool) -> list[int]:
    """The indices below N = ``count`` that a name ("low", "high") or a list stands for."""
    start = first_index(count, tied)
    if name == "low":
        found = list(range(start, count // 2 if count <= DEEP else 20, 2))
    elif name == "high":
        found = list(range(count // 2 if count <= DEEP else count - 20, count, 2))
    elif isinstance(name, str):
        raise InputError(f"layers {name!r} are unknown", hint='"low", "high", or a list of indices')
    else:
        found = [index for index in name if 0 <= index < count]
    if not found:
        raise InputError(
            f"no layer is left of {name!r} for a model of {count} blocks", hint=f"give 0 to {count - 1}"
        )
    return found


def is_tied(anatomy: Anatomy) -> bool:
    """Whether input and output embeddings are one matrix, told by the matrix and not by a configuration."""
    own: Any = anatomy.speaker
    return getattr(own.get_input_embeddings(), "weight", None) is getattr(anatomy.head, "weight", own)
