"""Range, edit, variation and registration against twins in exact fractions."""

from __future__ import annotations

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import CalibrationError, InputError
from reweigh.method.references import (
    edit_variation,
    median,
    range_index,
    register,
    rule_named,
    stable,
    strength,
)

# Quarters of few kinds, so that ties are massive and float64 arithmetic on them exact.
QUARTERS = st.integers(1, 6).map(lambda number: number / 4)
FLOATS = st.floats(2**-17, 1.0, width=32)


@functools.cache
def twin_range(n):
    """Largest k with 1 - 2 Pr[Bin(n, 1/2) <= k - 1] >= 0.95, all k tried."""
    tails = itertools.accumulate(math.comb(n, i) for i in range(n))
    valid = [k for k, tail in enumerate(tails, start=1) if 1 - 2 * Fraction(tail, 2**n) >= Fraction(95, 100)]
    return max(valid, default=None)


def twin_median(values):
    ordered = sorted(Fraction(value) for value in values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def twin_edit(reference, value, scale):
    return min(max((Fraction(reference) - Fraction(value)) / Fraction(scale), Fraction(0)), Fraction(1))


def twin_variation(values, k, scale):
    ordered = sorted(values)
    low, high = ordered[k - 1], ordered[len(ordered) - k]
    return sum(abs(twin_edit(high, x, scale) - twin_edit(low, x, scale)) for x in values) / len(values)


def twin_register(pairs):
    """b0 and {token: (b, n)} from a plain list of (token, value)."""
    scale = twin_median([value for _, value in pairs])
    found = {}
    for token in {token for token, _ in pairs}:
        mine = [value for other, value in pairs if other == token]
        k = twin_range(len(mine))
        if k is not None and twin_variation(mine, k, scale) < Fraction(1, 2):
            found[token] = (twin_median(mine), len(mine))
    return scale, found


def test_five_observations_never_have_a_range_and_six_have():
    assert [range_index(n) for n in range(8)] == [None] * 6 + [1, 1]


@pytest.mark.parametrize("n", [*range(6, 60), 99, 100, 150, 199, 200])
def test_exact_ranges_equal_a_sum_of_fractions(n):
    assert range_index(n) == twin_range(n)


def test_a_numpy_integer_has_the_range_of_its_value():
    for n in [5, 6, 62, 63, 64, 100, 200, 201]:
        range_index.cache_clear()  # equal numbers share an entry, whatever their types
        assert range_index(np.int64(n)) == twin_range(n) if n <= 200 else range_index(n)


def test_the_switch_to_the_normal_is_between_200_and_201():
    def normal_tail(n, k):  # Pr[Bin(n, 1/2) <= k - 1], continuity corrected, through the error function
        return (1 + math.erf((k - 0.5 - n / 2) / math.sqrt(n / 2))) / 2

    def normal(n):
        return max(k for k in range(1, n) if 1 - 2 * normal_tail(n, k) >= 0.95)

    for n in [*range(201, 420), 1000, 4999, 100_000]:
        assert range_index(n) == normal(n)
    # the two ways differ somewhere below the switch, so that this test can tell them apart ...
    differing = [n for n in range(6, 201) if twin_range(n) != normal(n)]
    assert differing
    for n in differing:
        assert range_index(n) == twin_range(n)
    # ... and the range is as good as the exact one above it
    assert all(abs(range_index(n) - twin_range(n)) <= 1 for n in (201, 202, 250, 399))


def test_two_hundred_is_summed_and_201_is_not(monkeypatch):
    """The two ways agree around the switch, so that only the way itself can tell on which side it lies."""

    def refuse(*_args):
        raise ArithmeticError("summed")

    monkeypatch.setattr(math, "comb", refuse)
    with pytest.raises(ArithmeticError, match="summed"):
        range_index.__wrapped__(200)
    assert range_index.__wrapped__(201) == 87


@settings(max_examples=60)
@given(reference=FLOATS, values=st.lists(FLOATS, min_size=1, max_size=20), scale=FLOATS)
def test_the_edit_is_clipped_and_equals_its_twin(reference, values, scale):
    found = strength(reference, np.array(values), scale)
    assert ((found >= 0) & (found <= 1)).all()
    for mine, value in zip(found, values, strict=True):
        assert mine == pytest.approx(float(twin_edit(reference, value, scale)), rel=1e-12, abs=1e-12)


@settings(max_examples=60)
@given(st.lists(QUARTERS, min_size=6, max_size=40), QUARTERS)
def test_variation_equals_its_twin_under_massive_ties(values, scale):
    k = range_index(len(values))
    found = edit_variation(np.sort(np.array(values)), k, scale)
    assert found == pytest.approx(float(twin_variation(values, k, scale)), abs=1e-12)


@settings(max_examples=60)
@given(st.lists(FLOATS, min_size=1, max_size=30))
def test_the_median_is_a_middle_value_or_the_mean_of_two(values):
    assert median(np.sort(np.array(values))) == float(twin_median(values))


def compare(found, pairs):
    scale, expected = twin_register(pairs)
    assert found.scale == float(scale)
    assert found.tokens.tolist() == sorted(expected)
    for token, reference, count in zip(found.tokens, found.references, found.counts, strict=True):
        assert (reference, count) == (float(expected[token][0]), expected[token][1])


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), QUARTERS), min_size=1, max_size=80))
def test_registration_equals_its_twin_under_massive_ties(pairs):
    # with a power of two as b0 every quotient is exact, so that a variation of exactly 0.5 is decided alike
    pairs += [(9, 0.5)] * (len(pairs) + 1)
    tokens, values = zip(*pairs, strict=True)
    compare(register(np.array(tokens), np.array(values)), pairs)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from([0, 7, 31999]), FLOATS), min_size=1, max_size=60))
def test_registration_equals_its_twin_on_any_values(pairs):
    tokens, values = zip(*pairs, strict=True)
    found = register(np.array(tokens), np.array(values, dtype=np.float32))
    scale, expected = twin_register(pairs)
    for token in {token for token, _ in pairs}:  # leave out what rounding may decide
        mine = [value for other, value in pairs if other == token]
        k = twin_range(len(mine))
        if k is not None and abs(twin_variation(mine, k, scale) - Fraction(1, 2)) < Fraction(1, 10**9):
            return
    compare(found, pairs)
    assert set(found.tokens.tolist()) == set(expected)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), QUARTERS, st.integers(1, 9)), min_size=1, max_size=25))
def test_counts_are_repeats(rows):
    tokens, values, counts = (np.array(column) for column in zip(*rows, strict=True))
    counted = register(tokens, values, counts)
    expanded = register(np.repeat(tokens, counts), np.repeat(values, counts))
    assert counted.scale == expanded.scale
    for name in ("tokens", "references", "counts"):
        assert np.array_equal(getattr(counted, name), getattr(expanded, name))


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), FLOATS), min_size=1, max_size=40), st.randoms())
def test_the_order_of_observations_does_not_matter(pairs, random):
    shuffled = random.sample(pairs, len(pairs))
    one, other = (
        register(*(np.array(column) for column in zip(*rows, strict=True))) for rows in (pairs, shuffled)
    )
    assert one.scale == other.scale
    assert np.array_equal(one.references, other.references)


def test_five_equal_values_are_not_registered_and_six_are():
    found = register(np.repeat([1, 2], [5, 6]), np.full(11, 0.25))
    assert found.tokens.tolist() == [2]


def test_a_variation_of_exactly_one_half_is_not_registered():
    # b0 = 1/4; six values 1/4 .. 1/2: the range is all of them, and De = mean of min(1/2 - x, 1/4) / (1/4)
    values = np.array([0.25, 0.25, 0.25, 0.5, 0.5, 0.5])
    assert edit_variation(values, 1, 0.25) == 0.5
    assert not stable(values, 0.25)
    assert stable(values, 0.26)


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0, 1.0], [-0.5, 0.1], [0.0, -1.0, 1.0]])
def test_b0_that_is_not_positive_is_refused(values):
    with pytest.raises(CalibrationError, match="positive") as caught:
        register(np.zeros(len(values), dtype=int), np.array(values))
    assert "layer" in str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad):
    with pytest.raises(CalibrationError, match="finite"):
        register(np.zeros(9, dtype=int), np.array([0.5] * 8 + [bad]))


@pytest.mark.parametrize("counts", [None, np.array([], dtype=int), np.array([0, 0])])
def test_no_observation_is_refused(counts):
    size = 0 if counts is None else len(counts)
    with pytest.raises(CalibrationError, match="observation"):
        register(np.zeros(size, dtype=int), np.full(size, 0.5), counts)


def test_the_count_rule_of_the_ablation():
    tokens, values = np.repeat([1, 2, 3], [4, 5, 9]), np.full(18, 0.5)
    assert register(tokens, values, rule=rule_named("count-5")).tokens.tolist() == [2, 3]
    assert register(tokens, values, rule=rule_named("count-1")).tokens.tolist() == [1, 2, 3]
    assert rule_named("stable") is stable


@pytest.mark.parametrize(
    "name", ["", "count", "count-", "count-0", "count--5", "count-five", "Stable", "count-2.5"]
)
def test_unknown_rules_are_refused(name):
    with pytest.raises(InputError, match="rule"):
        rule_named(name)
