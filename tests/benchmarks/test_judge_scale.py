"""Closed questions: the arithmetic of a distribution against a twin in fractions, and what is no distribution."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.benchmarks.judge.protocol import Distribution, ScaleQuestion
from reweigh.errors import InputError

WEIGHTS = st.lists(st.integers(0, 50), min_size=2, max_size=26).filter(any)


def closed(levels: int) -> ScaleQuestion:
    return ScaleQuestion(state="s", instructions="i", levels=("x",) * levels)


def distribution(weights: list[int]) -> Distribution:
    return Distribution(tuple(weight / sum(weights) for weight in weights))


@given(WEIGHTS, st.integers(0, 26))
def test_rating_and_expectation_against_fractions(weights: list[int], bound: int) -> None:
    """The twin draws a ballot for each unit of weight, counts them, and never divides before the end."""
    ballots = [level for level, weight in enumerate(weights) for _ in range(weight)]
    found = distribution(weights)
    most = max(ballots.count(level) for level in ballots)
    assert found.level == min(level for level in ballots if ballots.count(level) == most)
    assert found.expected == pytest.approx(float(Fraction(sum(ballots), len(ballots))))
    lower = [ballot for ballot in ballots if ballot < bound]
    assert found.below(bound) == pytest.approx(len(lower) / len(ballots))


@given(WEIGHTS)
def test_the_expectation_lies_between_the_levels_that_are_possible(weights: list[int]) -> None:
    found = distribution(weights)
    possible = [level for level, weight in enumerate(weights) if weight]
    assert possible[0] - 1e-9 <= found.expected <= possible[-1] + 1e-9
    assert found.level in possible


@given(WEIGHTS)
def test_turned_round_it_mirrors(weights: list[int]) -> None:
    top = len(weights) - 1
    turned = distribution(weights[::-1])
    assert turned.expected == pytest.approx(top - distribution(weights).expected)


def test_rounded_probabilities_are_weighed_by_their_sum() -> None:
    found = Distribution((0.33, 0.33, 0.335))
    assert found.expected == pytest.approx((0.33 + 2 * 0.335) / 0.995)
    assert found.below(3) == 1


WRONG: list[tuple[Any, str]] = [
    ({"0": 0.5, "1": 0.5}, "0 to 2"),
    ({"0": 0.5, "1": 0.25, "2": 0.25, "3": 0.0}, "0 to 2"),
    ({"0": 0.5, "1": 0.25, "02": 0.25}, "0 to 2"),
    ({}, "nothing"),
    ({"0": float("nan"), "1": 0.5, "2": 0.5}, "nan"),
    ({"0": float("inf"), "1": 0.5, "2": 0.5}, "inf"),
    ({"0": -0.1, "1": 0.6, "2": 0.5}, "-0.1"),
    ({"0": 1.1, "1": 0.0, "2": 0.0}, "1.1"),
    ({"0": True, "1": 0.0, "2": 0.0}, "True"),
    ({"0": "1", "1": 0.0, "2": 0.0}, "'1'"),
    ({"0": None, "1": 0.5, "2": 0.5}, "None"),
    ({"0": 0.5, "1": 0.5, "2": 0.5}, "sum to 1.5"),
    ({"0": 0.0, "1": 0.0, "2": 0.0}, "sum to 0"),
    ([0.5, 0.5], "3 levels"),
    ("abc", "3 levels"),
    (None, "3 levels"),
    (0.5, "3 levels"),
]


@pytest.mark.parametrize(("found", "why"), WRONG)
def test_what_is_not_a_distribution_is_refused(found: Any, why: str) -> None:
    with pytest.raises(InputError, match=why):
        closed(3).parse(found)


def test_levels_come_in_any_order_and_many() -> None:
    found = closed(11).parse({str(level): 1 / 11 for level in reversed(range(11))})
    assert found.expected == pytest.approx(5)
    given = {"10": 0.5, "2": 0.5} | dict.fromkeys("013456789", 0.0)
    assert closed(11).parse(given)[10] == 0.5


@pytest.mark.parametrize("count", [0, 1, 27])
def test_a_scale_has_bounds(count: int) -> None:
    with pytest.raises(InputError, match=f"{count} levels"):
        ScaleQuestion(state="s", instructions="i", levels=("x",) * count)
