"""The schedule under load, simulated: the driver's own loop with workers whose shards take random time, fail and dawdle.

Says how long a cluster of some size takes for some shards, beside a formula for the same. No model, no Ray.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from reweigh.errors import InputError
from reweigh.scale.crew import Report, work_through
from reweigh.scale.schedule import SLOW


@dataclass(frozen=True, kw_only=True)
class Conditions:
    """How workers behave.

    Attributes:
        seconds: Median time of a shard.
        spread: Standard deviation of the logarithm of its time.
        stragglers: Share of shards that take ``slowdown`` times as long, as on a busy node.
        slowdown: See there.
        failures: Share of shards that end with their worker, at a random moment.
        restart: Seconds until a lost worker has its model again.
        seed: Seed of all of it.
    """

    seconds: float = 1.0
    spread: float = 0.2
    stragglers: float = 0.01
    slowdown: float = 10.0
    failures: float = 0.001
    restart: float = 60.0
    seed: int = 42

    def __post_init__(self) -> None:
        times = {"time of a shard": self.seconds, "slowdown of a straggler": self.slowdown}
        for name, value in times.items():
            if not 0 < value < math.inf:
                raise InputError(f"the {name} is {value:g}", hint="give a positive number")
        for name, value in {"spread of times": self.spread, "time of a restart": self.restart}.items():
            if not 0 <= value < math.inf:
                raise InputError(f"the {name} is {value:g}", hint="give zero or more")
        for name, value in {"stragglers": self.stragglers, "failures": self.failures}.items():
            if not 0 <= value < 0.5:
                raise InputError(f"the share of {name} is {value:g}", hint="give a share from 0 to below 0.5")


@dataclass
class SimulatedCrew:
    """Workers in simulated time."""

    workers: int
    conditions: Conditions
    clock: float = 0.0
    lost: int = 0
    given: int = 0
    _free: list[str] = field(default_factory=list)
    _events: list[tuple[float, int, str, int, bool]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.conditions.seed)
        self._free = [f"worker {number + 1}" for number in range(self.workers)]

    def now(self) -> float:
        """Simulated seconds since the beginning."""
        return self.clock

    def idle(self) -> Sequence[str]:
        """Workers without a shard."""
        return list(self._free)

    def give(self, worker: str, shard: int, task: Any) -> None:
        """Let a worker begin, and draw how it will end."""
        self._free.remove(worker)
        self.given += 1
        how = self.conditions
        length = how.seconds * self._dice.lognormvariate(0, how.spread)
        length *= how.slowdown if self._dice.random() < how.stragglers else 1
        dies = self._dice.random() < how.failures
        end = self.clock + length * (self._dice.random() if dies else 1)
        heapq.heappush(self._events, (end, self.given, worker, shard, dies))

    def wait(self) -> list[Report]:
        """Go on to the next end of a shard, or return of a worker; while some are idle, in steps of a shard's time."""
        if self._free and self._events[0][0] > self.clock + self.conditions.seconds:
            self.clock += self.conditions.seconds
            return []
        self.clock, _, worker, shard, dies = heapq.heappop(self._events)
        if dies:
            self.lost += 1
            heapq.heappush(self._events, (self.clock + self.conditions.restart, 0, worker, -1, False))
            return [Report(worker, shard, failure="lost")]
        self._free.append(worker)
        return [] if shard < 0 else [Report(worker, shard)]


@dataclass(frozen=True)
class Simulated:
    """What a simulation found: seconds, workers lost, and shards that were given to a second worker."""

    seconds: float
    lost: int
    copies: int


def simulate(shards: int, workers: int, conditions: Conditions) -> Simulated:
    """Work through some shards on some workers."""
    if shards < 1 or workers < 1:
        raise InputError(f"{shards} shards on {workers} workers cannot be simulated")
    crew = SimulatedCrew(workers, conditions)
    for _ in work_through(crew, dict.fromkeys(range(shards))):
        pass
    return Simulated(crew.clock, crew.lost, crew.given - shards - crew.lost)


def expected_seconds(shards: int, workers: int, conditions: Conditions) -> float:
    """The cost model that the simulation checks: all work shared evenly, then one shard to wait for at the end.

    A straggler of the last shards is waited for as long as the schedule does before a copy begins.
    """
    how = conditions
    mean = how.seconds * math.exp(how.spread**2 / 2) * (1 + how.stragglers * (how.slowdown - 1))
    each = mean + how.failures * (mean / 2 + how.restart)
    late = 1 - (1 - how.stragglers) ** min(shards, workers)
    last = how.seconds * (1 - late + late * min(how.slowdown, SLOW + 2))
    return max(shards / workers - 1, 0) * each + last
