"""Who works on which shard: claimed, given back when a worker is lost, copied when its worker is slow, counted once.

Pure: time is a number the caller gives, workers are names. The driver on Ray and the simulation share it.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

ATTEMPTS = 4
"""Times a shard may fail, or take its worker down with it, before the whole is given up."""

SLOW = 3.0
"""A shard that runs for so many times the median is given to an idle worker, too."""

COPIES = 3
"""Workers that may be at one shard together."""


@dataclass
class Schedule:
    """The state of all shards.

    Attributes:
        waiting: Shards nobody works on, in their order; one that was given back goes first.
        running: For each shard under way its workers, and when each began.
        done: Shards that were returned.
        failures: How often each shard came to nothing.
        durations: How long returned shards took, ascending.
    """

    waiting: deque[int]
    running: dict[int, dict[str, float]] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    durations: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, shards: Iterable[int]) -> Schedule:
        """A schedule of which nothing has begun."""
        return cls(deque(shards))

    @property
    def is_finished(self) -> bool:
        """Whether every shard was returned."""
        return not self.waiting and not self.running

    def claim(self, worker: str, now: float) -> int | None:
        """A shard for an idle worker: the next one that waits, else a copy of the one that is slowest, else none."""
        shard = self.waiting.popleft() if self.waiting else self._slowest(now)
        if shard is not None:
            self.running.setdefault(shard, {})[worker] = now
        return shard

    def finish(self, worker: str, shard: int, now: float) -> bool:
        """Note that a worker returned a shard; whether it is the first to, so that its result counts."""
        begun = self.running.get(shard, {}).pop(worker, None)
        if shard in self.done:
            return False
        if begun is not None:
            insort(self.durations, now - begun)
        self.running.pop(shard, None)
        if shard in self.waiting:  # its worker was given up too early
            self.waiting.remove(shard)
        self.done.add(shard)
        return True

    def fail(self, worker: str, shard: int) -> int:
        """Note that a worker came to nothing; give the shard back unless another still works on it. How often that was."""
        workers = self.running.get(shard, {})
        workers.pop(worker, None)
        if shard in self.done:
            return 0
        self.failures[shard] = self.failures.get(shard, 0) + 1
        if not workers and shard not in self.waiting:
            self.running.pop(shard, None)
            self.waiting.appendleft(shard)
        return self.failures[shard]

    def _slowest(self, now: float) -> int | None:
        """The shard whose latest worker has been at it the longest, if that is far beyond the usual."""
        latest = {shard: max(begun.values()) for shard, begun in self.running.items() if len(begun) < COPIES}
        if not self.durations or not latest:
            return None
        shard = min(latest, key=lambda one: (latest[one], one))
        return shard if now - latest[shard] > SLOW * self.durations[len(self.durations) // 2] else None
