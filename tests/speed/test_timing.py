"""Timing without a clock: turns, ratios within rounds, intervals."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.speed.timing import Timing, interleave, middle


def test_variants_take_turns_and_the_order_rotates() -> None:
    calls: list[str] = []
    ticks = itertools.count()
    timings = interleave(
        {name: (lambda name=name: calls.append(name)) for name in "abc"}, 3, clock=lambda: float(next(ticks))
    )
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"  # one warm round, then three
    assert all(timing.seconds == (1.0, 1.0, 1.0) for timing in timings.values())


def test_a_quick_variant_is_repeated_and_its_time_divided() -> None:
    now = [0.0]

    def work() -> None:
        now[0] += 0.25

    timing = interleave({"a": work}, 2, clock=lambda: now[0], least=1.0)["a"]
    assert timing.seconds == (0.25, 0.25)


def test_ratios_are_formed_within_rounds() -> None:
    slow_then_fast, half = Timing((4.0, 1.0, 2.0)), Timing((2.0, 0.5, 1.0))
    assert half.over(slow_then_fast) == (0.5, 0.5, 0.5)
    assert half.per(2).value == 0.5e9


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40))
def test_the_interval_holds_the_median_and_never_more_than_the_range(values: list[float]) -> None:
    estimate = middle(values)
    assert min(values) <= estimate.low <= estimate.value <= estimate.high <= max(values)


def test_the_interval_is_the_exact_one() -> None:
    for n in range(6, 30):
        low = sorted(range(n)).index(middle(list(range(n))).low)  # type: ignore[arg-type]
        covered = 1 - 2 * sum(math.comb(n, i) for i in range(low + 1)) / 2**n
        wider = 1 - 2 * sum(math.comb(n, i) for i in range(low + 2)) / 2**n
        assert covered >= 0.95 > wider
    assert middle([3.0, 1.0, 2.0]) == (2.0, 1.0, 3.0)


def test_no_rounds_are_refused() -> None:
    with pytest.raises(InputError, match="0 rounds"):
        interleave({"a": lambda: None}, 0)
