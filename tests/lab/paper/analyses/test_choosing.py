"""Cases are chosen by score, ties by image id; one step has the paper's arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.analyses.cases import (
    degenerate,
    net_removal,
    new_classes,
    repetition,
)
from reweigh.lab.paper.published import published
from reweigh.lab.paper.study import finding
from reweigh.lab.tasks.base import Item
from reweigh.lab.views.examples import highest


def item(identity: int | str, *named: str) -> Item:
    """An answer that names objects; a capital letter is a hallucinated one."""
    mentions = [{"object": name.lower(), "hallucinated": name.isupper()} for name in named]
    return Item(id=identity, image=identity, counts={}, details={"mentions": mentions})


def test_the_highest_score_goes_first_and_ties_go_by_id() -> None:
    assert highest({10: 2, 9: 2, 3: 5, 1: 0, 2: -4}) == [3, 9, 10]
    assert highest({"b": 1, "a": 1}) == ["a", "b"]


@given(st.dictionaries(st.integers(0, 50), st.integers(-3, 3)))
def test_the_order_agrees_with_repeated_search(scores: dict[int, int]) -> None:
    left, expected = {image: score for image, score in scores.items() if score > 0}, []
    while left:
        best = min(image for image, score in left.items() if score == max(left.values()))
        expected.append(best)
        del left[best]
    assert highest(scores) == expected


def test_scores_of_the_rules() -> None:
    base = [item(1, "DOG", "DOG", "cat"), item(2, "cat", "cat")]
    arm = [item(1, "DOG"), item(2, "CUP", "BUS", "cat")]
    assert net_removal(base, arm) == {1: 1, 2: -2}
    assert repetition(item(3, "cat", "cat", "dog")) == 2
    assert degenerate(base, [item(1, *["bus"] * 5), item(2, "cat", "cat")]) == {1: 5}  # twice is usual
    full = [item(1, "dog"), item(2, "cup")]
    assert new_classes(arm, base, full) == {1: 0, 2: 1}  # the cup is named by the full method


def test_sentences_say_whether_a_finding_shows() -> None:
    assert Estimate(1.0, 0.5, 1.5).text(digits=1) == "1.0 [0.5, 1.5]"
    assert Estimate(1.0, None, None).text(digits=1, signed=True, unit="%") == "+1.0%"
    assert Estimate(None, None, None).text() == "undefined"
    assert "As in the paper, x grows: +1.00" in finding("x grows", Estimate(1.0, 0.5, 1.5))
    assert "not confirmed here: +1.00 [-0.50, +1.50], the interval includes zero" in finding(
        "x", Estimate(1.0, -0.5, 1.5)
    )
    assert "the opposite holds" in finding("x grows", Estimate(-1.0, -1.5, -0.5))
    assert "As in the paper" in finding("x falls", Estimate(-1.0, -1.5, -0.5), above=False)
    assert "cannot be decided" in finding("x", Estimate(None, None, None))
    assert "no interval" in finding("x", Estimate(1.0, None, None))


# the paper's mechanism table: step 71 of LLaVA-1.5, b0 = 0.00324809, beta = 1.1

SCALE, BETA = 0.00324809, 1.1
STEP = [  # word, z, DMRR, b (both in 1e-3), s, beta s, z after
    ("cars", 17.000, 0.758, 8.321, 1.000, 1.100, 15.900),
    ("people", 16.359, 2.225, 6.128, 1.000, 1.100, 15.259),
    ("traffic", 16.344, 40.513, 6.984, 0.000, 0.000, 16.344),
    ("ped", 15.039, 4.393, 4.743, 0.108, 0.119, 14.920),
]


def test_the_recorded_step_of_the_paper() -> None:
    pytest.importorskip("torch")
    from made_step import recorded  # beside this test

    from reweigh.lab.paper.analyses.steps import Field

    image, references, texts = recorded(STEP)
    from reweigh.lab.paper.analyses.cases import Cases, first_changed_step, recorded_step, tabulated

    field = Field("dmrr", references, SCALE)
    step = recorded_step(image, 0, field, BETA, texts)
    filled = Cases().fill(Frame(tabulated(step, "an image")))["tab:mechanism-case"]
    published_ = published()["tab:mechanism-case"].values["LLaVA-1.5-7B"]
    assert {entry.row for entry in filled} == {word for word, *_ in STEP}
    for entry, value in filled.items():
        assert value.number == pytest.approx(published_[entry].number, abs=2e-3), entry
    rows = step.plot_rows()
    for row, (word, z, _, _, s, shift, after) in zip(rows, STEP, strict=True):
        assert row["token"] == word
        assert row["z"] == pytest.approx(z, abs=1e-4)
        assert (row["s"], row["shift"], row["z_after"]) == pytest.approx((s, shift, after), abs=2e-3)
    assert [row["token"] for row in rows if row["before_winner"]] == ["cars"]
    assert [row["token"] for row in rows if row["after_winner"]] == ["traffic"]
    assert first_changed_step(image, field, BETA) == 0
    empty = Field("dmrr", np.full(len(texts), np.nan), SCALE)
    assert first_changed_step(image, empty, BETA) is None  # nothing is registered
