"""A clock that runs only inside certain functions: the CPU seconds of one part of a run.

Two runs differ by more than a small part takes, so the part is timed within one run.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Target = tuple[Any, str]
"""A class, module or object, and the name of a function there."""


class OwnClock:
    """Adds up the time of the functions it follows; one that calls another counts once.

    Reading the clock takes some microseconds itself: two readings in a row tell how many, and they are subtracted.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._runs = False

    def take(self) -> float:
        """Return the seconds since the last call."""
        taken, self.seconds = self.seconds, 0.0
        return taken

    @contextmanager
    def following(self, targets: Sequence[Target]) -> Iterator[None]:
        """Follow functions by name, and restore them afterwards."""
        kept = [(owner, name, getattr(owner, name)) for owner, name in targets]
        for owner, name, original in kept:
            setattr(owner, name, self._followed(original))
        try:
            yield
        finally:
            for owner, name, original in kept:
                setattr(owner, name, original)

    def _followed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def followed(*args: Any, **kwargs: Any) -> Any:
            if self._runs:
                return original(*args, **kwargs)
            self._runs = True
            before = self._clock()
            begin = self._clock()
            try:
                return original(*args, **kwargs)
            finally:
                self.seconds += self._clock() - begin - (begin - before)
                self._runs = False

        return followed
