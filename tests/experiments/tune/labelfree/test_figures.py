"""Figures with a verifier in place of labels, against a twin that expands every mention, and who is believed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.benchmarks.base import Record
from reweigh.benchmarks.bootstrap import point
from reweigh.benchmarks.chair.metrics import figures
from reweigh.experiments.tune.search import BASE
from reweigh.experiments.tune.verdicts import Trust, known_absents, pools, pseudo_items, trust

NAMES = "abcdef"
DESCRIPTION = st.lists(st.sampled_from(NAMES), max_size=6)


@st.composite
def searches(draw):
    images = draw(st.integers(1, 5))
    points = {
        point: [Counter(draw(DESCRIPTION)) for _ in range(images)] for point in range(draw(st.integers(1, 4)))
    }
    affirmed = [{name: draw(st.booleans()) for name in NAMES} for _ in range(images)]
    return points, affirmed


@given(searches())
def test_they_are_the_formulas_with_denied_mentions_as_inventions(case):
    """CHAIR_I = sum C (1 - A) / sum C; recall = sum [C > 0] A / sum over U of A; F1 is their harmonic mean."""
    points, affirmed = case
    pool = pools(points)
    records = [Record(id=i, image=str(i), prompt="", max_new_tokens=1) for i in range(len(pool))]
    for mentions in points.values():
        found = point(pseudo_items(records, mentions, pool, affirmed), figures)
        every = [(image, name, n) for image, one in enumerate(mentions) for name, n in one.items()]
        wrong = [(image, n) for image, name, n in every if not affirmed[image][name]]
        assert found["chair_s"] == pytest.approx(100 * len({image for image, _ in wrong}) / len(pool))
        said = sum(n for *_, n in every)
        there = sum(affirmed[image][name] for image, one in enumerate(pool) for name in one)
        if not said or not there:
            assert found["f1"] is None
            continue
        precision = 1 - sum(n for _, n in wrong) / said
        recall = sum(affirmed[image][name] for image, name, _ in every) / there
        assert found["chair_i"] == pytest.approx(100 * (1 - precision))
        assert found["recall"] == pytest.approx(100 * recall)
        both = precision + recall
        assert found["f1"] == pytest.approx(200 * precision * recall / both if both else 0)


@given(searches())
def test_absents_are_named_by_neighbors_and_by_no_point_here(case):
    points, _ = case
    pool = pools(points)
    for image, names in enumerate(known_absents(pool)):
        assert len(names) <= 4
        assert pool[image].isdisjoint(names)
        others = set().union(*(one for other, one in enumerate(pool) if other != image))
        assert others.issuperset(names)


def test_absents_come_from_the_most_similar_images():
    kitchen = [{"cup", "fork"}] * 9
    pool = [{"cup"}, *kitchen, *[{"dog", "tree"}] * 9]
    assert known_absents(pool)[0] == ["fork"]


def test_trust_counts_what_it_says():
    points = {BASE: [Counter(a=2, b=1), Counter(c=1)], (1, 1.0): [Counter(a=1), Counter(c=1, d=1)]}
    affirmed = [{"a": True, "b": False, "x": True}, {"c": True, "d": False, "y": False}]
    found = trust(points, [["x"], ["y"]], affirmed)
    assert found == Trust(h=1.0, f=0.5, d0=25.0, denied=1, asked=6)
    assert found.j == 0.5


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Trust(0.9, 0.5, 20.0, 100), "hardly distinguishes present"),
        (Trust(0.9, 0.1, 20.0, 29), "denies only 29 mentions"),
        (Trust(None, 0.1, 20.0, 100), "no object is named by every point"),
        (Trust(0.9, 0.1, 20.0, 30), None),
    ],
)
def test_an_untrusted_verifier_chooses_nothing(found, why):
    assert (found.refusal() is None) if why is None else (why in found.refusal())


def test_warnings_name_a_yes_leaning_and_an_agreeing_verifier():
    assert len(Trust(0.95, 0.1, 20.0, 99).warnings()) == 1
    said = " ".join(Trust(0.95, 0.41, 7.9, 99).warnings())
    assert "affirms 41% of known absents" in said
    assert "denies only 7.9%" in said
    assert "too cautious" in said
