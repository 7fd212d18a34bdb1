"""The drawing of one decoding step, and heat maps over the picture evidence was read from."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from reweigh.errors import InputError
from reweigh.lab.views.charts import chart
from reweigh.lab.views.mechanism import WARM, draw_step, heat_scale, heatmap, select, step_svg, visible


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
    assert "suppressed" in said
    assert "emitted" in said


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
    assert "cars 17.00, lowered to 15.90, suppressed" in label
    assert "traffic 16.34, emitted" in label


def test_the_words_tell_of_the_candidates_that_are_drawn() -> None:
    few, all_ = (step_svg(STEP, limit=limit) for limit in (3, 8))
    assert "the" not in words(few).split()
    assert "the 15.00" not in few
    assert "the 15.00" in all_


def test_a_piece_is_shown_as_the_word_it_begins() -> None:
    said = words(
        step_svg([row(" f", 2.0, 0.0, after_winner=True, word="fire"), row(" car", 1.0, 0.0, word="car")])
    )
    assert "fire" in said
    assert "emitted, piece “f”" in said
    assert "piece “car”" not in said


def overlay(values: Any, **options: Any) -> np.ndarray[Any, Any]:
    with Image.open(BytesIO(heatmap(Image.new("RGB", (64, 32), (90, 90, 90)), values, **options))) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"), dtype=int)


def test_heat_lies_where_the_evidence_is() -> None:
    grid = np.zeros((2, 4))
    grid[1, 3] = 1.0
    seen = overlay(grid)
    assert seen.shape == (32, 64, 3)
    brightest = np.unravel_index(seen.sum(axis=2).argmax(), seen.shape[:2])
    assert brightest[0] >= 16
    assert brightest[1] >= 48
    assert (seen[0, 0] == seen[0, 20]).all()


def test_flat_or_missing_evidence_shows_nothing() -> None:
    for grid in (np.ones((3, 3)), np.full((3, 3), np.nan)):
        seen = overlay(grid)
        assert (seen == seen[0, 0]).all()


def test_bounds_given_make_pictures_comparable() -> None:
    weak = overlay(np.array([[0.0, 0.1]]), low=0.0, high=1.0)
    strong = overlay(np.array([[0.0, 1.0]]), low=0.0, high=1.0)
    assert strong.max() > weak.max()


def test_a_grid_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match="shape"):
        overlay(np.ones(3))


def test_the_scale_of_a_heat_map_has_its_ends_and_its_colors() -> None:
    shown = heat_scale(0.0, 0.01234)
    assert "<span>0</span>" in shown
    assert "<span>0.0123</span>" in shown
    assert all(f"rgb{color}" in shown for _, color in WARM)
