"""Figures with a verifier in place of labels, against a twin that expands every mention, and who is believed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.benchmarks.chair.metrics import count_caption, figures
from reweigh.studies.tune.labelfree.figures import Trust, known_absents, pools, pseudo_quality, trust

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
def test_they_are_chairs_figures_with_affirmed_objects_as_the_truth(case):
    points, affirmed = case
    pool = pools(points)
    for mentions in points.values():
        found = pseudo_quality(mentions, pool, affirmed)
        counts: Counter[str] = Counter()
        for said, objects, yes in zip(mentions, pool, affirmed, strict=True):
            truth = {name for name in objects if yes[name]}
            counts.update(count_caption(list(said.elements()), truth, words=0))
        expected = {name: float(value) for name, value in figures(counts).items()}
        assert found.chair_s == pytest.approx(expected["chair_s"])
        if counts["mentions"] and counts["reference"]:
            for name in ("chair_i", "recall", "f1"):
                assert getattr(found, name) == pytest.approx(expected[name])
        else:
            assert found.f1 is None


@given(searches())
def test_absents_are_named_by_neighbours_and_by_no_point_here(case):
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
    points = {"base": [Counter(a=2, b=1), Counter(c=1)], 1: [Counter(a=1), Counter(c=1, d=1)]}
    yes = [{"a": True, "b": False, "x": True}, {"c": True, "d": False, "y": False}]
    found = trust(points, "base", [["x"], ["y"]], yes)
    assert found == Trust(h=1.0, f=0.5, d0=25.0, denied=1)
    assert found.j == 0.5


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Trust(0.9, 0.5, 20.0, 100), "hardly tells present from absent"),
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
    assert "too timid" in said
