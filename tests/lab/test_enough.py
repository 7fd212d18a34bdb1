"""One rule decides whether enough is behind a claim, and every claim follows it."""

from __future__ import annotations

import pytest

from reweigh.lab.bootstrap import ratio
from reweigh.lab.enough import EVENTS, RECORDS, claims, sides_of, too_few
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.study import finding
from reweigh.lab.tasks.types import Item
from reweigh.lab.views.contrast import shade
from reweigh.lab.views.evaluation import _verdict


def described(number: int, wrong: int, right: int) -> Item:
    mentions = [{"object": "dog", "hallucinated": True}] * wrong + [
        {"object": "cat", "hallucinated": False}
    ] * right
    counts = {"wrong": wrong, "all": wrong + right}
    return Item(id=number, image=number, counts=counts, details={"mentions": mentions})


def figures(counts):
    return {"chair_i": ratio(counts["wrong"], counts["all"])}


@pytest.mark.parametrize(
    ("records", "wrong", "right", "enough"),
    [
        (RECORDS, EVENTS, EVENTS, True),
        (RECORDS - 1, EVENTS, EVENTS, False),
        (RECORDS, EVENTS - 1, EVENTS, False),
        (RECORDS, EVENTS, EVENTS - 1, False),
    ],
)
def test_records_and_both_sides_count(records, wrong, right, enough):
    assert (too_few(records, {"hallucinated": wrong, "grounded": right}) is None) is enough


def test_the_sides_are_those_of_both_runs_together():
    items = [described(1, 2, 3), described(2, 0, 1)]
    assert sides_of(items, items) == {"hallucinated mentions": 4, "other mentions": 8}
    asked = [Item(id=n, image=n, counts={}, details={"correct": n == 1}) for n in (1, 2, 3)]
    assert sides_of(asked) == {"right answers": 1, "wrong answers": 2}
    assert sides_of([Item(id=1, image=1, counts={})]) == {}, "a judged answer has no sides"


@pytest.mark.parametrize(("count", "enough"), [(30, False), (RECORDS, True)])
def test_a_difference_without_enough_behind_it_is_shown_but_claims_nothing(count, enough):
    base, arm = ([described(n, wrong, 4) for n in range(count)] for wrong in (4, 1))
    change = claims(base, arm, figures)["chair_i"]
    assert change.value == pytest.approx(20 - 50)
    assert change.high < 0
    assert change.beyond_chance is enough
    assert (shade(change, 50.0, "lower") == "better-strong") is enough
    assert _verdict("lower", change) == ("better" if enough else "too few")
    said = finding("x falls", change, above=False)
    assert said.startswith(
        "As in the paper" if enough else "Whether x falls cannot be decided here: 30 records are too few"
    )


def test_a_study_says_so_instead_of_claiming():
    few = too_few(500, {"confident hallucinated onsets": 1})
    said = finding("x grows", Estimate(1.11, 1.11, 1.11), few=few)
    assert said == (
        "Whether x grows cannot be decided here: 1 confident hallucinated onsets are too few, 20 are needed "
        "(+1.11 [+1.11, +1.11])."
    )
