"""A clock that runs only while some functions do."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tools.bench.timing import OwnClock


class Worker:
    """Takes ten seconds for a part of its own, which it calls from a whole of thirteen."""

    now = 0.0

    def part(self):
        Worker.now += 10

    def whole(self):
        Worker.now += 1
        self.part()
        Worker.now += 2
        return "done"


@pytest.fixture
def clock():
    Worker.now = 0.0
    return OwnClock(lambda: Worker.now)


def test_only_what_is_followed_counts_and_nested_calls_count_once(clock):
    with clock.following([(Worker, "part"), (Worker, "whole")]):
        assert Worker().whole() == "done"
        Worker.now += 100
        Worker().part()
    assert clock.take() == 23
    assert clock.take() == 0
    Worker().whole()
    assert clock.take() == 0  # everything is as it was


def test_a_clock_inside_another(clock):
    inner = OwnClock(lambda: Worker.now)
    with clock.following([(Worker, "whole")]), inner.following([(Worker, "part")]):
        Worker().whole()
    assert (clock.take(), inner.take()) == (13, 10)


def test_a_failure_stops_the_clock_and_puts_everything_back(clock):
    def fail():
        Worker.now += 5
        raise ValueError

    module = SimpleNamespace(fail=fail)
    with pytest.raises(ValueError), clock.following([(module, "fail")]):
        module.fail()
    assert clock.take() == 5
    assert module.fail is fail


def test_reading_the_clock_does_not_count():
    def read():
        Worker.now += 3
        return Worker.now

    Worker.now = 0.0
    clock = OwnClock(read)
    with clock.following([(Worker, "part")]):
        Worker().part()
    assert clock.take() == 10
