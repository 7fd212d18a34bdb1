from __future__ import annotations

import math

import pytest

from reweigh.errors import ReweighError
from reweigh.lab.estimate import Estimate


def test_a_part_that_is_not_finite_is_none() -> None:
    assert Estimate(math.nan, -math.inf, 2.0).parts == (None, None, 2.0)
    assert not Estimate(1.0, math.nan, 2.0).bounded


@pytest.mark.parametrize(
    ("low", "high", "beyond"), [(-2, -1, True), (-1, 1, False), (0, 1, False), (1, 2, True)]
)
def test_chance_is_an_interval_with_zero(low: float, high: float, beyond: bool) -> None:
    assert Estimate((low + high) / 2, low, high).beyond_chance is beyond
    assert not Estimate(1.0).beyond_chance


def test_a_number_that_is_needed_must_be_there() -> None:
    assert Estimate(2.0).number == 2.0
    with pytest.raises(ReweighError, match="zero"):
        _ = Estimate(None, reason="its denominator is zero").number


def test_json_has_a_reason_only_where_there_is_one() -> None:
    assert Estimate(1.0, 0.0, 2.0).to_json() == {"value": 1.0, "low": 0.0, "high": 2.0}
    assert Estimate(None, reason="why").to_json() == {
        "value": None,
        "low": None,
        "high": None,
        "reason": "why",
    }
