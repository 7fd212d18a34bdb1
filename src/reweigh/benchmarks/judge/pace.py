"""When the next request may start: an even rate, a common pause after a refusal, growing waits."""

from __future__ import annotations

import email.utils
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from reweigh.benchmarks.judge.protocol import JudgeError
from reweigh.errors import InputError


class Pace:
    """Spaces the starts of requests over all threads; a hold delays all of them, because a refusal concerns all.

    Args:
        per_minute: Largest number of starts in a minute; None for no limit.
        clock: Monotonic seconds.
        sleep: Waits for seconds; true when the judge was closed meanwhile.
    """

    def __init__(
        self,
        per_minute: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], bool],
    ) -> None:
        if per_minute is not None and not per_minute > 0:
            raise InputError(f"a rate of {per_minute} requests a minute is not positive")
        self._interval = 60.0 / per_minute if per_minute else 0.0
        self._clock = clock
        self._sleep = sleep
        self._next = clock()
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Return when this thread may start its request."""
        while True:
            with self._lock:
                now = self._clock()
                if now >= self._next:
                    self._next = now + self._interval
                    return
                pause = self._next - now
            if self._sleep(pause):
                raise JudgeError("the judge was closed while a question was waiting")

    def hold(self, seconds: float) -> None:
        """Start no request for some seconds."""
        with self._lock:
            self._next = max(self._next, self._clock() + seconds)


def backoff(
    attempt: int, *, first: float, longest: float, chance: Callable[[], float] = random.random
) -> float:
    """Seconds to wait after failure number ``attempt`` (from 0): doubling, bounded, the upper half at random.

    The random half keeps threads that failed together from coming back together.
    """
    wait = min(longest, first * 2.0 ** min(attempt, 60))
    return wait * (0.5 + 0.5 * chance())


def retry_after(header: str | None, *, now: Callable[[], float] = time.time) -> float | None:
    """Seconds asked for by a Retry-After header, seconds or a date; None if absent or unreadable."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(header)
        except (TypeError, ValueError, OverflowError):
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.fromtimestamp(now(), UTC)).total_seconds()
    # float() accepts NaN and infinity, which are not waiting times.
    return max(0.0, seconds) if seconds < float("inf") else None
