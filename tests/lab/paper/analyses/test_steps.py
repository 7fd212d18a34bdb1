"""Windows, allocation, detection and confidence against brute-force twins and known answers."""

from __future__ import annotations

import itertools
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.bootstrap import bootstrap_counts
from reweigh.lab.paper.analyses.allocation import Edits, allocate
from reweigh.lab.paper.analyses.confidence import (
    GAP,
    GROUNDED,
    HALLUCINATED,
    SHARE,
    Onsets,
    deficits,
    samples,
)
from reweigh.lab.paper.analyses.detection import auroc, raw_edit
from reweigh.lab.paper.analyses.steps import (
    MENTIONS,
    Count,
    count_mentions,
    first_switch,
    selectivity,
    switches,
    winner,
)

LOGITS = st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5]), min_size=2, max_size=8)


# windows


@given(LOGITS, st.data())
def test_switches_agree_with_a_sorted_twin(values: list[float], data: st.DataObject) -> None:
    ids = np.array(data.draw(st.permutations(range(len(values)))))
    edit = np.array(
        data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.1]), min_size=len(values), max_size=len(values)))
    )
    logits = np.array(values, dtype=np.float32)

    def first(scores: np.ndarray) -> int:
        return min(zip(-scores, ids, strict=True))[1]

    assert winner(ids, logits) == first(logits.astype(float))
    assert switches(ids, logits, edit) == (first(logits.astype(float)) != first(logits.astype(float) - edit))


def test_a_window_with_forced_switches_counts_once() -> None:
    switched = [True, False, True, True, False, True]
    assert first_switch(switched, 4) == 0
    assert first_switch(switched, 5) == 2  # the four steps before the onset are 1 to 4
    assert first_switch(switched, 2) == 0  # cut at the answer's start
    assert first_switch(switched, 0) is None
    assert first_switch([False, False, True], 2) is None  # the onset itself is no part of its window
    found = [first_switch([True] * 9, 8) is not None, first_switch([False] * 9, 8) is not None]
    assert count_mentions(["hallucinated", "grounded"], {("x",): found}) == {
        Count(MENTIONS, "hallucinated"): 1.0,
        Count(MENTIONS, "grounded"): 1.0,
        Count(("x",), "hallucinated"): 1.0,
        Count(("x",), "grounded"): 0.0,
    }


def test_the_raw_control_takes_beta_from_the_lowest_evidence_alone() -> None:
    ids = np.array([7, 3, 5])
    assert raw_edit(ids, np.array([0.2, 0.1, 0.1]), 1.1).tolist() == [0.0, 1.1, 0.0]  # of equals the lower id
    assert raw_edit(ids, np.array([0.0, 0.1, 0.1]), 1.1).tolist() == [1.1, 0.0, 0.0]


def test_selectivity_is_the_planted_one_and_its_interval_repeats() -> None:
    kinds = ["hallucinated", "grounded"]
    counts = [(i, count_mentions(kinds, {("x",): [i % 2 == 0, i % 4 == 0]})) for i in range(40)]

    def figures(counts):  # type: ignore[no-untyped-def]
        return {"selectivity": selectivity(counts, ("x",))}

    first, second = (bootstrap_counts(counts, figures, seed=3)["selectivity"] for _ in range(2))
    assert first.value == pytest.approx(50.0 - 25.0)
    assert first == second
    assert (first.low or 99.0) < 25.0 < (first.high or 0.0)


# allocation


def edits(deficit: np.ndarray) -> Edits:
    return Edits(deficit, np.nan_to_num(np.clip(deficit, 0.0, 1.0), nan=0.0))


def naive_order(field: Edits, ids: np.ndarray) -> list[int]:
    def before(one: int, other: int) -> bool:
        if field.strength[one] != field.strength[other]:
            return bool(field.strength[one] > field.strength[other])
        known = [not isnan(field.deficit[i]) for i in (one, other)]
        if known[0] != known[1]:
            return known[0]
        if known[0] and field.deficit[one] != field.deficit[other]:
            return bool(field.deficit[one] > field.deficit[other])
        return bool(ids[one] < ids[other])

    places = list(range(len(ids)))
    return sorted(places, key=lambda one: sum(before(other, one) for other in places if other != one))


FIELDS = st.lists(
    st.sampled_from([float("nan"), -2.0, -0.5, 0.0, 0.3, 0.7, 1.0, 1.5, 4.0]), min_size=1, max_size=7
)


@given(FIELDS, st.data())
def test_order_and_allocation_agree_with_their_twins(deficits_: list[float], data: st.DataObject) -> None:
    ids = np.array(data.draw(st.permutations(range(10, 10 + len(deficits_)))))
    own = edits(np.array(deficits_))
    values = data.draw(st.lists(st.floats(-1, 2), min_size=len(ids), max_size=len(ids)))
    other = edits(np.array(values))
    assert own.order(ids).tolist() == naive_order(own, ids)
    assert (
        allocate(own, own, ids).tolist() == own.strength.tolist()
    )  # a field is its own donor and assignment
    given_ = allocate(other, own, ids)
    assert sorted(given_) == sorted(other.strength)  # the multiset of magnitudes stays
    ranked = [given_[place] for place in naive_order(own, ids)]
    assert ranked == sorted(given_, reverse=True)


def test_ties_go_by_deficit_then_registration_then_id() -> None:
    nan = float("nan")
    ids = np.array([40, 30, 20, 10, 50, 5])
    field = edits(np.array([3.0, 9.0, nan, -1.0, -1.0, nan]))
    assert field.strength.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]
    assert ids[field.order(ids)].tolist() == [30, 40, 10, 50, 5, 20]


# detection


@given(
    st.lists(st.tuples(st.sampled_from([0.0, 0.1, 0.2, 0.9]), st.booleans(), st.integers(0, 3)), max_size=14)
)
def test_auroc_agrees_with_counting_pairs(rows: list[tuple[float, bool, int]]) -> None:
    score, kind, weight = (np.array([row[i] for row in rows]) for i in range(3))
    won = pairs = 0.0
    for (a, positive, w), (b, other, u) in itertools.product(rows, rows):
        if positive and not other:
            pairs += w * u
            won += w * u * (1.0 if a > b else 0.5 if a == b else 0.0)
    found = float(auroc(score, kind.astype(bool), weight.astype(float)))
    assert isnan(found) if pairs == 0 else found == pytest.approx(won / pairs)


def test_auroc_of_a_perfect_a_reversed_and_a_permuted_label() -> None:
    score = np.linspace(0, 1, 4000)
    label = score > 0.4
    assert float(auroc(score, label)) == 1.0
    assert float(auroc(-score, label)) == 0.0
    assert float(auroc(np.zeros(4000), label)) == 0.5
    drawn = np.random.default_rng(0).permutation(label)
    assert float(auroc(score, drawn)) == pytest.approx(0.5, abs=0.03)
    many = [float(auroc(score, np.random.default_rng(seed).permutation(label))) for seed in range(60)]
    assert np.mean(many) == pytest.approx(0.5, abs=0.004)


def test_auroc_of_several_rows_of_weights_at_once() -> None:
    rng = np.random.default_rng(1)
    score, kind = rng.normal(size=30), rng.random(30) < 0.4
    weights = rng.integers(0, 3, size=(5, 30)).astype(float)
    assert auroc(score, kind, weights).tolist() == [float(auroc(score, kind, row)) for row in weights]


# confidence


def test_the_confident_quartile_and_its_deficits() -> None:
    probability = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.9, 0.95, 0.99])
    hallucinated = np.array([True] * 5 + [False, True, False])
    deficit = np.array([9.0] * 5 + [0.0, 2.5, np.nan])
    onsets = Onsets(np.arange(8), probability, hallucinated, deficit)
    assert {name: len(values) for name, values in samples(onsets).items()} == {
        SHARE: 2,
        HALLUCINATED: 1,
        GROUNDED: 0,
    }
    found = deficits(onsets)
    assert (found[SHARE], found[HALLUCINATED]) == (50.0, 2.5)
    assert isnan(found[GROUNDED])  # the only grounded one is not registered
    assert isnan(found[GAP])


def test_drawing_every_image_once_changes_nothing_and_twice_repeats_it() -> None:
    rng = np.random.default_rng(2)
    onsets = Onsets(np.sort(rng.integers(0, 9, 60)), rng.random(60), rng.random(60) < 0.3, rng.random(60))
    assert deficits(onsets.drawn(np.ones(9))) == deficits(onsets)
    twice = onsets.drawn(np.full(9, 2))
    assert len(twice) == 120
    assert len(onsets.drawn(np.eye(9)[4])) == int((onsets.image == 4).sum())
    assert deficits(Onsets(*(np.zeros(0, t) for t in (int, float, bool, float))))[SHARE] != 0
