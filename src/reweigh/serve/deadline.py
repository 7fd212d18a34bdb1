"""The time that one request has, from its arrival to its last token."""

from __future__ import annotations

import time

from reweigh.serve.problem import Problem


class Deadline:
    """So many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left, 0 when the time is over."""
        return max(0.0, self._ends - time.monotonic())

    def check(self) -> None:
        """Refuse to continue once the time is up."""
        if not self.left():
            raise self.over()

    def over(self) -> Problem:
        """What the client is told."""
        return Problem(504, "the answer took longer than this server allows", code="timeout")
