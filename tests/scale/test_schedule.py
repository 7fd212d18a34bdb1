"""The schedule of shards: whatever fails, comes twice or is slow, every shard counts exactly once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice import Dice
from reweigh.errors import ReweighError
from reweigh.scale.crew import Report, work_through
from reweigh.scale.schedule import ATTEMPTS, SLOW, Schedule


@given(st.integers(1, 5), st.sets(st.integers(0, 99), max_size=25), st.integers(0, 10**6))
def test_every_shard_counts_once_whatever_happens(workers, shards, seed):
    found = list(work_through(Dice(workers, seed), {shard: shard + 1 for shard in shards}))
    assert sorted(found) == [(shard, (shard + 1) ** 2) for shard in sorted(shards)]


def test_a_late_copy_of_earlier_work_is_not_taken_for_this():
    """Results and failures under numbers that were never given out change nothing."""
    crew = Dice(3, seed=5)
    crew.returned = [Report("worker 1", 50, result=-1), Report("worker 2", 51, failure="killed")]
    assert sorted(work_through(crew, {7: 2, 8: 3})) == [(7, 4), (8, 9)]


def test_slow_shards_are_given_to_a_second_worker():
    """With dice that make one shard in five fifty times as long, some shard is given twice without a failure."""
    crew = Dice(4, seed=1, deaths=0)
    assert len(list(work_through(crew, dict.fromkeys(range(20), 1)))) == 20
    assert 20 < len(crew.given) <= 60


def test_a_shard_that_always_fails_ends_the_work_with_its_reason():
    crew = Dice(2, seed=3, deaths=0, fatal={4})
    with pytest.raises(ReweighError, match=f"{ATTEMPTS} times"):
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
