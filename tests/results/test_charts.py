"""Figures of studies: both kinds of file, the same bytes each time, and nothing drawn where there is no number."""

from __future__ import annotations

from math import nan
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from reweigh.results.charts import COLOURS, chart, dots, lines
from reweigh.results.tables import Estimate

pytest.importorskip("matplotlib")
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


def test_lines_are_drawn_in_order_whatever_the_order_of_points(tmp_path: Path) -> None:
    with chart(tmp_path / "figure") as panel:
        lines(panel, {"one": [(3, 1.0), (1, 2.0), (2, 3.0)]})
        assert list(panel.lines[0].get_xdata()) == [1, 2, 3]
        assert list(panel.lines[0].get_ydata()) == [2.0, 3.0, 1.0]


def test_colours_differ_in_lightness_or_hue_for_every_kind_of_sight() -> None:
    """Simulated protanopia, deuteranopia and tritanopia keep every pair of the first four colours apart."""
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
    rgb = np.array([[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in COLOURS[:4]]) ** 2.2
    for matrix in matrices.values():
        seen = np.clip(rgb @ np.array(matrix).T, 0, 1) ** (1 / 2.2)
        apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(4, 1)]
        assert apart.min() > 0.12
