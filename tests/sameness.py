"""``assert_same`` and ``assert_differ``: whether two things of one kind agree to the last bit.

For generations (tokens, and the raw logits of every step), reference tables, observations and model identities.
Both functions return nothing, so `assert assert_same(...)` fails instead of passing unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from itertools import zip_longest
from typing import Any

import numpy as np
import torch

EVERY_ROW = slice(None)


def assert_same(one: Any, other: Any, rows: slice = EVERY_ROW) -> None:
    """Fail with the name of the first part that differs. ``rows`` restricts generations to some of their rows."""
    difference = _first_difference(one, other, rows)
    assert difference is None, f"{type(one).__name__}: {difference} differs"


def assert_differ(one: Any, other: Any, rows: slice = EVERY_ROW) -> None:
    """Fail if every part is the same."""
    assert _first_difference(one, other, rows) is not None, f"{type(one).__name__}: nothing differs"


def _first_difference(one: Any, other: Any, rows: slice) -> str | None:
    assert type(one) is type(other), "two different types"
    if hasattr(one, "differences"):
        found = [*one.differences(other.to_json()), *other.differences(one.to_json())]
        return str(found[0]) if found else None
    for (name, mine), (_, theirs) in zip_longest(
        _parts(one, rows), _parts(other, rows), fillvalue=("", None)
    ):
        if not _equal(mine, theirs):
            return name or "the length"
    return None


def _parts(value: Any, rows: slice) -> Iterator[tuple[str, Any]]:
    if hasattr(value, "logits"):
        yield "sequences", value.sequences[rows]
        for step, logits in enumerate(value.logits):
            yield f"logits of step {step}", logits[rows]
    elif hasattr(value, "fingerprint"):
        for name in ("fingerprint", "tokens", "references", "counts"):
            yield name, getattr(value, name)
    else:
        for field in fields(value):
            yield field.name, getattr(value, field.name)


def _equal(mine: Any, theirs: Any) -> bool:
    if isinstance(mine, torch.Tensor) and isinstance(theirs, torch.Tensor):
        return torch.equal(mine, theirs)
    return bool(np.array_equal(mine, theirs))
