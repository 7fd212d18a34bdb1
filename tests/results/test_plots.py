from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from reweigh.errors import InputError
from reweigh.results.heat import heatmap
from reweigh.results.plots import interval_plot, line_plot, mechanism_plot, visible
from reweigh.results.tables import Estimate

SVG = "{http://www.w3.org/2000/svg}"


def row(token: str, z: float, shift: float, **more: Any) -> dict[str, Any]:
    base = {
        "dmrr": 0.001,
        "b": 0.002,
        "deficit": 0.001,
        "s": shift / 1.1,
        "before_winner": False,
        "after_winner": False,
    }
    return {"token": token, "z": z, "shift": shift, "z_after": z - shift, **base, **more}


STEP = [
    row("▁cars", 17.0, 1.1, before_winner=True, dmrr=0.000758, b=0.008321),
    row(" traffic", 16.344, 0.0, after_winner=True, dmrr=0.040513, b=0.006984),
    row("ped", 15.039, 0.119),
    row("the", 15.0, 0.0, b=None),
    row("<s>\n", 14.0, 0.0, dmrr=None),
]


def words(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_mechanism_plot_says_what_happened() -> None:
    said = words(mechanism_plot(STEP, title="step 71"))
    for text in (
        "step 71",
        "cars",
        "traffic",
        "−1.10",
        "−0.12",
        "0.76 < 8.32",
        "40.51 ≥ 6.98",
        "not registered",
        "<s>⏎",
    ):
        assert text in said
    assert "no evidence" in said


def test_arrows_are_as_long_as_the_shift() -> None:
    svg = ElementTree.fromstring(mechanism_plot(STEP))
    heights = [float(node.get("cy") or 0) for node in svg.iter(f"{SVG}circle")]
    # In drawing order: cars after, cars before, traffic, ped after, ped before, ...
    logit = (heights[2] - heights[1]) / (17.0 - 16.344)
    assert heights[0] - heights[1] == pytest.approx(1.1 * logit, abs=0.3)
    assert heights[3] - heights[4] == pytest.approx(0.119 * logit, abs=0.3)


def test_both_winners_are_shown_beyond_the_limit() -> None:
    said = words(mechanism_plot([*STEP, row("last", 1.0, 0.0, after_winner=True)], limit=1))
    assert "cars" in said
    assert "last" in said
    assert "ped" not in said


def test_an_empty_step_is_refused() -> None:
    with pytest.raises(InputError, match="candidate"):
        mechanism_plot([])


@given(st.text(max_size=60))
def test_any_token_gives_well_formed_svg(token: str) -> None:
    ElementTree.fromstring(mechanism_plot([row(token, 1.0, 0.5)]))
    assert visible(token).isprintable()
    assert 1 <= len(visible(token, 13)) <= 13


@given(st.floats(-1e6, 1e6), st.floats(0, 1e3), st.floats(0, 1e3))
@example(0.0, 0.0, 5e-324)
def test_intervals_stay_inside_the_drawing(value: float, below: float, above: float) -> None:
    rows = [("a & b", Estimate(value, value - below, value + above)), ("none", Estimate(float("nan"), 0, 1))]
    svg = ElementTree.fromstring(interval_plot(rows, title="t", zero=True))
    width = float(svg.get("width") or 0)
    places = [float(node.get("cx") or 0) for node in svg.iter(f"{SVG}circle")]
    assert len(places) == 1
    assert all(0 <= place <= width for place in places)


def test_axis_labels_hold_the_interval() -> None:
    said = words(interval_plot([("x", Estimate(-5.6, -9.1, -2.0))]))
    ticks = [float(word) for word in said if re.fullmatch(r"-?[\d.]+", word)]
    assert min(ticks) <= -9.1
    assert max(ticks) >= -2.0
    assert "-5.6 [-9.1, -2.0]" in said


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


def test_lines_join_their_points_in_order_below_a_common_level() -> None:
    lines = {"one": [(1.0, 2.0), (0.5, 1.0), (2.0, 4.0)], "a < b": [(0.5, 3.0)]}
    drawn = line_plot(lines, across="beta", up="F1", level=("base", 5.0))
    tree = ElementTree.fromstring(drawn)
    shown = [node.text for node in tree.iter() if node.tag.endswith("text")]
    assert {"one", "a < b", "base", "beta", "F1"} <= set(shown)
    circles = [node for node in tree.iter() if node.tag.endswith("circle")]
    assert len(circles) == 4 + 2, "each point, and each name"
    first, middle, last = (node.attrib for node in circles[:3])
    assert float(first["cx"]) < float(middle["cx"]) < float(last["cx"])
    assert float(first["cy"]) > float(middle["cy"]) > float(last["cy"])
    thick = [node for node in tree.iter() if node.tag.endswith("line") and "width:2" in node.attrib["style"]]
    assert len(thick) == 2 + 2, "three points are joined by two lines, and each name has a sample"


def test_a_single_point_can_be_drawn_and_no_point_cannot() -> None:
    assert "circle" in line_plot({"one": [(1.0, 1.0)]}, across="x", up="y")
    with pytest.raises(InputError, match="one point"):
        line_plot({"one": []}, across="x", up="y")


def test_the_scale_of_a_heat_map_has_its_ends_and_its_colours() -> None:
    from reweigh.results.heat import WARM, heat_scale

    shown = heat_scale(0.0, 0.01234)
    assert "<span>0</span>" in shown
    assert "<span>0.0123</span>" in shown
    assert all(f"rgb{colour}" in shown for _, colour in WARM)


def test_a_narrow_drawing_says_the_same() -> None:
    rows = [("a figure with a long name", Estimate(-5.6, -9.1, -2.0)), ("none", Estimate(float("nan"), 0, 1))]
    wide, narrow = (words(interval_plot(rows, width=width)) for width in (720, 356))
    assert sorted(wide) == sorted(narrow)
    lines = {"one": [(1.0, 2.0), (2.0, 4.0)], "two": [(1.0, 3.0)]}
    wide, narrow = (words(line_plot(lines, across="x", up="y", width=width)) for width in (720, 356))
    assert sorted(wide) == sorted(narrow)


def test_plots_use_no_colour_that_means_good_or_bad() -> None:
    drawings = [
        mechanism_plot(STEP),
        interval_plot([("x", Estimate(1, 0, 2))]),
        line_plot({str(i): [(i, i)] for i in range(6)}, across="x", up="y"),
    ]
    for drawing in drawings:
        assert "--good" not in drawing
        assert "--bad" not in drawing


def test_a_drawing_is_described_in_words() -> None:
    label = ElementTree.fromstring(mechanism_plot(STEP)).get("aria-label") or ""
    assert "cars 17.00, lowered to 15.90, was ahead" in label
    assert "traffic 16.34, written" in label
    assert "x 1.0 [0.0, 2.0]" in (
        ElementTree.fromstring(interval_plot([("x", Estimate(1, 0, 2))])).get("aria-label") or ""
    )


def test_a_piece_is_shown_as_the_word_it_begins() -> None:
    said = words(
        mechanism_plot(
            [row(" f", 2.0, 0.0, after_winner=True, word="fire"), row(" car", 1.0, 0.0, word="car")]
        )
    )
    assert "fire" in said
    assert "written, piece “f”" in said
    assert "car" in said
    assert not any("piece “car”" in word for word in said)


def test_a_heat_map_that_stands_alone_carries_its_scale() -> None:
    plain, scaled = overlay(np.eye(2), low=0.0, high=1.0), overlay(np.eye(2), low=0.0, high=1.0, scale=True)
    assert (scaled[: len(plain)] == plain).all(), "the map itself is the same"
    strip = scaled[len(plain) :]
    assert strip.shape[0] > 0
    assert (strip == 255).all(axis=2).any(), "white paper"
    assert (strip < 100).all(axis=2).any(), "and dark numbers"


def test_a_slender_mechanism_plot_keeps_both_winners() -> None:
    low = [row(name, z, 0.0) for name, z in (("a", 20.0), ("b", 19.0), ("c", 18.0))]
    winners = [row("ahead", 17.0, 3.0, before_winner=True), row("written", 16.0, 0.0, after_winner=True)]
    drawn = mechanism_plot([*low, *winners], slender=True)
    said = words(drawn)
    assert {"a", "ahead", "written"} <= set(said)
    assert not {"b", "c"} & set(said)
    assert float(ElementTree.fromstring(drawn).get("width", "")) <= 356
    assert "below: evidence against reference, in 10⁻³" in said
    assert len(words(mechanism_plot(STEP, slender=True))) < len(words(mechanism_plot(STEP)))


def test_differences_have_signs() -> None:
    rows = [("recall", Estimate(2.0, -1.0, 3.0))]
    assert "+2.0 [-1.0, +3.0]" in words(interval_plot(rows, zero=True))
    assert "2.0 [-1.0, 3.0]" in words(interval_plot(rows))


def test_names_and_numbers_of_a_narrow_interval_plot_do_not_meet() -> None:
    """Letters are taken for 7 pixels wide, as the plot takes them."""
    for name in ("short", "mixed: typical 30%, base's 50%, denies 15%"):
        drawn = interval_plot([("labels", Estimate(1, 0, 2)), (name, Estimate(14.4, 0.0, 53.1))], width=356)
        found = [
            (float(node.get("y", "")), node.get("text-anchor"), 7 * len(node.text or ""))
            for node in ElementTree.fromstring(drawn).iter(f"{SVG}text")
            if node.get("text-anchor") != "middle"
        ]
        for y, side, length in found:
            beside = [other for height, anchor, other in found if height == y and anchor != side]
            assert not beside or length + beside[0] <= 356
