"""Figures of studies: both kinds of file, the same bytes each time, and nothing drawn where there is no number."""

from __future__ import annotations

import re
from math import nan
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from reweigh.lab.estimate import Estimate
from reweigh.lab.views.charts import COLORS, Marks, chart, dots, inline, lines, scatter, svg

SERIES = {
    "rank": {"a": Estimate(1.0, 0.5, 1.5), "b": 2.0},
    "probability": {"a": Estimate(nan, nan, nan), "b": -1.0},
}


def draw(folder: Path) -> Path:
    with chart(folder / "all", height=4, rows=2) as panels:
        dots(panels[0], SERIES, zero=True, label="points")
        lines(
            panels[1], {"one": [(2, 1.0), (1, Estimate(2.0, 1.0, 3.0))]}, level=("base", 1.5), marked=(2, 1.0)
        )
    return folder / "all"


def test_both_files_have_the_same_bytes_every_time(tmp_path: Path) -> None:
    first, second = draw(tmp_path / "one"), draw(tmp_path / "two")
    for ending in ("png", "svg"):
        data = first.with_suffix(f".{ending}").read_bytes()
        assert data == second.with_suffix(f".{ending}").read_bytes()
    assert first.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert ElementTree.parse(first.with_suffix(".svg")).getroot().tag.endswith("svg")


def test_a_missing_number_is_not_drawn(tmp_path: Path) -> None:
    with chart(tmp_path / "figure") as panel:
        dots(panel, SERIES)
        marks = [line for line in panel.lines if line.get_marker() != "None"]
        assert len(marks) == 3  # of four values one is not a number
        whiskers = [line.get_xdata() for line in panel.lines if line.get_marker() == "None"]
        assert any(list(ends) == [0.5, 1.5] for ends in whiskers)


def test_a_scatter_without_any_number_has_no_legend(tmp_path: Path) -> None:
    with chart(tmp_path / "figure") as panel:
        scatter(panel, [Marks("one", [(None, 1.0)])])
        assert not panel.figure.legends


def test_lines_are_drawn_in_order_whatever_the_order_of_points(tmp_path: Path) -> None:
    with chart(tmp_path / "figure") as panel:
        lines(panel, {"one": [(3, 1.0), (1, 2.0), (2, 3.0)]})
        assert list(panel.lines[0].get_xdata()) == [1, 2, 3]
        assert list(panel.lines[0].get_ydata()) == [2.0, 3.0, 1.0]


def test_colors_differ_in_lightness_or_hue_for_every_kind_of_sight() -> None:
    """Simulated protanopia, deuteranopia and tritanopia keep every pair of the first four colors apart."""
    matrices = {  # linear RGB, full dichromacy
        "protan": [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ],
        "deutan": [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ],
        "tritan": [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ],
    }
    rgb = np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in COLORS[:4]]) ** 2.2
    for matrix in matrices.values():
        seen = np.clip(rgb @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(4, 1)]
        assert apart.min() > 0.12


def draw_both(panel, narrow) -> None:
    dots(panel, {"": {"a & b": Estimate(-5.6, -9.1, -2.0), "none": Estimate(None)}}, zero=True, digits=1)


def words(drawn: str) -> str:
    return " ".join(
        node.text or "" for node in ElementTree.fromstring(drawn).iter() if node.tag.endswith("text")
    )


def test_a_drawing_for_a_page_is_text_in_the_colors_of_the_page() -> None:
    drawn = svg(draw_both, alt='a "b" & c')
    assert ElementTree.fromstring(drawn).get("aria-label") == 'a "b" & c'
    assert "a & b" in words(drawn)
    assert "-5.6 [-9.1, -2.0]" in words(drawn)
    assert "var(--ink, #1d232b)" in drawn
    assert "--good" not in drawn, "blue and red mean good and bad"


def test_drawings_of_one_page_share_no_ids() -> None:
    one, other = svg(draw_both, alt="one"), svg(draw_both, alt="other")
    found = [set(re.findall(r' id="([^"]+)"', drawn)) for drawn in (one, other)]
    assert found[0]
    assert not found[0] & found[1]
    for drawn, ids in zip((one, other), found, strict=True):
        assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', drawn)) <= ids, "every reference has its target"


def test_a_page_gets_a_wide_and_a_narrow_drawing() -> None:
    both = inline(draw_both, alt="x")
    widths = [float(one) for one in re.findall(r'<svg[^>]* width="([0-9.]+)pt"', both)]
    assert len(widths) == 2
    assert widths[0] == 2 * widths[1]
    assert both.index('class="wide"') < both.index('class="narrow"')


def test_named_points_have_their_intervals_and_no_two_look_alike(tmp_path: Path) -> None:
    many = [
        Marks(f"method {number}", [(1 + number / 100, Estimate(10.0, 9.0, 11.0))]) for number in range(20)
    ]
    with chart(tmp_path / "figure") as panel:
        far = Marks("far", [(8.0, 5.0), (9.0, 6.0)], others=[(8.5, 7.0)], ringed=(8.0, 5.0), chief=True)
        scatter(panel, [*many, far, Marks("unknown", [(None, 1.0)])], level=("base", 2.0, 8.0))
        assert panel.get_xscale() == "log", "an axis of ratios grows by factors"
        named = {line.get_label(): line for line in panel.lines if not line.get_label().startswith("_")}
        assert list(named) == [*(one.name for one in many), "far", "base"]
        looks = {(line.get_marker(), line.get_color()) for line in named.values()}
        assert len(looks) == len(named)
        assert any(list(line.get_ydata()) == [9.0, 11.0] for line in panel.lines)
