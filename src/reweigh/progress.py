"""Progress of long work: one bar with the time left, on standard error, silent where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


def progress(
    items: Iterable[T], what: str, *, total: int | None = None, done: int = 0, show: bool | None = None
) -> Iterator[T]:
    """Iterate with a bar; ``done`` items of ``total`` were finished by an earlier run."""
    from tqdm import tqdm

    disable = not (sys.stderr.isatty() if show is None else show)
    yield from tqdm(
        items, desc=what, total=total, initial=done, disable=disable, file=sys.stderr, dynamic_ncols=True
    )


def bar(
    what: str, *, total: int | None = None, done: int = 0, unit: str = "it", show: bool | None = None
) -> Any:
    """A bar that the caller advances with ``update(n)``; use it as a context manager."""
    from tqdm import tqdm

    disable = not (sys.stderr.isatty() if show is None else show)
    return tqdm(
        desc=what, total=total, initial=done, unit=unit, disable=disable, file=sys.stderr, dynamic_ncols=True
    )
