"""Progress of long work on standard error: a bar with the time left, or occasional lines without a terminal."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

T = TypeVar("T")

SECONDS = 30.0
"""Seconds between two lines without a terminal; shorter work prints nothing."""

_quiet = False


def be_quiet(quiet: bool) -> None:
    """Show no progress from now on, or show it again."""
    global _quiet
    _quiet = quiet


def is_quiet() -> bool:
    """Return whether progress is switched off."""
    return _quiet


class Lines(tqdm):
    """A bar for a log: whole lines, rarely, and one at the end if there was any."""

    monitor_interval = 0  # no monitor thread

    def __init__(self, items: Any = None, **options: Any) -> None:
        self.printed = False
        self.due: float | None = None
        known = options.get("total") is not None or hasattr(items, "__len__")
        form = "{desc}: {n_fmt} of {total_fmt} ({percentage:.0f}%), {elapsed} so far, {remaining} left"
        super().__init__(
            items,
            **options,
            bar_format=form if known else "{desc}: {n_fmt}, {elapsed} so far",
            mininterval=SECONDS,
            miniters=1,
            delay=SECONDS,
            unit_scale=options.get("unit") == "B",
        )

    def refresh(self, *args: Any, **options: Any) -> bool | None:
        """Write a line unless the last one is recent; otherwise every update of the bar's note would write one."""
        if self.disable:
            return None
        now = self._time()
        if now < (self.start_t + SECONDS if self.due is None else self.due):
            return None
        self.due = now + SECONDS
        return bool(super().refresh(*args, **options))

    def set_description(self, desc: str | None = None, refresh: bool | None = True) -> None:
        """Name the work; the line adds the colon itself."""
        self.set_description_str(desc, refresh)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        self.fp.write(f"{self if msg is None else msg}\n")
        self.fp.flush()
        self.printed = True

    def close(self) -> None:
        if not self.disable:
            if self.printed and self.n > self.last_print_n:
                self.display()
            self.fp = io.StringIO()  # what a terminal gets at the end
        super().close()


def progress(
    items: Iterable[T], what: str, *, total: int | None = None, show: bool | None = None
) -> Iterator[T]:
    """Iterate with a bar."""
    yield from _made(items, show, desc=what, total=total)


def bar(
    what: str, *, total: int | None = None, done: int = 0, unit: str = "it", show: bool | None = None
) -> Any:
    """Make a bar that the caller advances with ``update(n)``; use it as a context manager."""
    return _made(None, show, desc=what, total=total, initial=done, unit=unit)


def _made(items: Iterable[Any] | None, show: bool | None, **options: Any) -> Any:
    """Make a bar on a terminal or if ``show`` is set, lines otherwise, nothing if progress is switched off."""
    options |= {"disable": _quiet or show is False, "file": sys.stderr}
    if show or sys.stderr.isatty():
        return tqdm(items, **options, dynamic_ncols=True)
    return Lines(items, **options)
