"""The schedule of shards: whatever fails, comes twice or is slow, every shard counts exactly once."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import ReweighError
from reweigh.scale.crew import Report, work_through
from reweigh.scale.schedule import ATTEMPTS, SLOW, Schedule


class Dice:
    """A crew whose workers return, die or dawdle as dice say; late copies report after the first one did."""

    def __init__(self, workers, seed, deaths=0.3, fatal=()):
        self.workers = [f"worker {number}" for number in range(workers)]
        self.dice = random.Random(seed)
        self.deaths, self.fatal = deaths, fatal
        self.busy, self.clock = {}, 0.0
        self.lost, self.given, self.returned = {}, [], []

    def now(self):
        return self.clock

    def idle(self):
        return [worker for worker in self.workers if worker not in self.busy]

    def give(self, worker, shard, task):
        self.given.append(shard)
        long = 50.0 if self.dice.random() < 0.2 else 1.0
        self.busy[worker] = shard, task, self.clock + self.dice.uniform(0.5, 1.5) * long

    def wait(self):
        self.clock += self.dice.uniform(0, 2)
        ready = [worker for worker, (_, _, end) in self.busy.items() if end <= self.clock]
        self.dice.shuffle(ready)
        reports = [self.report(worker) for worker in ready]
        self.returned += [report for report in reports if report.failure is None]
        twice = [self.dice.choice(self.returned)] if self.returned and self.dice.random() < 0.3 else []
        return reports + twice  # a result that comes a second time

    def report(self, worker):
        shard, task, _ = self.busy.pop(worker)
        dies = self.lost.get(shard, 0) < ATTEMPTS - 1 and self.dice.random() < self.deaths
        if dies or shard in self.fatal:
            self.lost[shard] = self.lost.get(shard, 0) + 1
            return Report(worker, shard, failure="killed")
        return Report(worker, shard, result=task * task)


@settings(deadline=None)
@given(st.integers(1, 5), st.sets(st.integers(0, 99), max_size=25), st.integers(0, 10**6))
def test_every_shard_counts_once_whatever_happens(workers, shards, seed):
    found = list(work_through(Dice(workers, seed), {shard: shard + 1 for shard in shards}))
    assert sorted(found) == [(shard, (shard + 1) ** 2) for shard in sorted(shards)]


def test_slow_shards_are_given_to_a_second_worker():
    """With dice that make one shard in five fifty times as long, some shard is given twice without a failure."""
    crew = Dice(4, seed=1, deaths=0)
    assert len(list(work_through(crew, dict.fromkeys(range(20), 1)))) == 20
    assert 20 < len(crew.given) <= 60


def test_a_shard_that_always_fails_ends_the_work_with_its_reason():
    crew = Dice(2, seed=3, deaths=0, fatal={4})
    with pytest.raises(
        ReweighError, match=f"shard 4 failed {ATTEMPTS} times, the last time on worker .: killed"
    ):
        list(work_through(crew, dict.fromkeys(range(8), 1)))


def test_the_first_return_counts_and_the_second_does_not():
    schedule = Schedule.of([0, 1])
    assert (schedule.claim("a", 0.0), schedule.claim("b", 0.0), schedule.claim("c", 0.5)) == (0, 1, None)
    assert schedule.finish("a", 0, 1.0)
    assert schedule.claim("a", SLOW) is None  # not yet beyond the usual
    assert schedule.claim("a", SLOW + 0.1) == 1
    assert schedule.claim("c", SLOW + 1.0) is None  # the copy has only begun
    assert [schedule.claim(worker, 100.0) for worker in "cd"] == [1, None]  # three are enough
    assert schedule.finish("a", 1, 5.0)
    assert schedule.is_finished
    assert not schedule.finish("b", 1, 6.0)
    assert schedule.fail("b", 1) == 0


def test_a_lost_worker_gives_its_shard_back_first_in_line():
    schedule = Schedule.of(range(3))
    assert schedule.claim("a", 0.0) == 0
    assert schedule.fail("a", 0) == 1
    assert schedule.claim("b", 1.0) == 0
    assert schedule.finish("a", 0, 2.0)  # it was not dead after all, and came first
    assert not schedule.finish("b", 0, 2.0)
    assert [schedule.claim("b", 3.0), schedule.claim("a", 3.0)] == [1, 2]
