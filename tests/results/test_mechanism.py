"""The drawing of one decoding step says what happened to every candidate."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.results.charts import chart
from reweigh.results.mechanism import draw_step, select, step_svg, visible


def row(token: str, z: float, shift: float, **more: Any) -> dict[str, Any]:
    base = {"dmrr": 0.001, "b": 0.002, "s": shift / 1.1, "before_winner": False, "after_winner": False}
    return {"token": token, "z": z, "shift": shift, "z_after": z - shift, **base, **more}


STEP = [
    row("▁cars", 17.0, 1.1, before_winner=True, dmrr=0.000758, b=0.008321),
    row(" traffic", 16.344, 0.0, after_winner=True, dmrr=0.040513, b=0.006984),
    row("ped", 15.039, 0.119),
    row("the", 15.0, 0.0, b=None),
    row("<s>\n", 14.0, 0.0, dmrr=None),
]


def words(drawn: str) -> str:
    return " ".join(
        node.text or "" for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")
    )


def test_it_says_what_happened() -> None:
    said = words(step_svg(STEP))
    for text in (
        "cars",
        "traffic",
        "−1.10",
        "−0.12",
        "0.758 < 8.32",
        "40.5 ≥ 6.98",
        "not registered",
        "<s>⏎",
    ):
        assert text in said
    assert "no evidence" in said
    assert "was ahead" in said
    assert "written" in said


def test_arrows_are_as_long_as_the_shift(tmp_path) -> None:
    with chart(tmp_path / "step") as panel:
        draw_step(panel, STEP)
        arrows = [text for text in panel.texts if text.arrow_patch is not None]
        assert [one.xyann[1] - one.xy[1] for one in arrows] == pytest.approx([1.1, 0.119])


def test_both_winners_are_shown_beyond_the_limit() -> None:
    rows = [*STEP, row("last", 1.0, 0.0, after_winner=True)]
    assert [one["token"] for one in select(rows, 1)] == ["▁cars", " traffic", "last"]


def test_a_narrow_drawing_keeps_both_winners(tmp_path) -> None:
    low = [row(name, z, 0.0) for name, z in (("a", 20.0), ("b", 19.0), ("c", 18.0))]
    winners = [row("ahead", 17.0, 3.0, before_winner=True), row("wrote", 16.0, 0.0, after_winner=True)]
    with chart(tmp_path / "step") as panel:
        draw_step(panel, [*low, *winners], narrow=True)
        names = [tick.get_text().split("\n")[0] for tick in panel.get_xticklabels()]
    assert names == ["a", "ahead", "wrote"]


def test_an_empty_step_is_refused() -> None:
    with pytest.raises(InputError, match="candidate"):
        step_svg([])


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=60))
def test_any_token_gives_well_formed_svg(token: str) -> None:
    ElementTree.fromstring(step_svg([row(token, 1.0, 0.5)]))


@given(st.text(max_size=60))
def test_any_token_can_be_printed(token: str) -> None:
    assert visible(token).isprintable()
    assert 1 <= len(visible(token, 13)) <= 13


def test_a_drawing_is_described_in_words() -> None:
    label = ElementTree.fromstring(step_svg(STEP)).get("aria-label") or ""
    assert "cars 17.00, lowered to 15.90, was ahead" in label
    assert "traffic 16.34, written" in label


def test_a_piece_is_shown_as_the_word_it_begins() -> None:
    said = words(
        step_svg([row(" f", 2.0, 0.0, after_winner=True, word="fire"), row(" car", 1.0, 0.0, word="car")])
    )
    assert "fire" in said
    assert "written, piece “f”" in said
    assert "piece “car”" not in said
