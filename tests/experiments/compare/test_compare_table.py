"""Shades, places and the four faces of the comparison table."""

from __future__ import annotations

import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.estimate import Estimate
from reweigh.experiments.compare import report as render
from reweigh.experiments.compare.fluency import unfinished
from reweigh.experiments.compare.report import html
from reweigh.experiments.compare.table import (
    Comparison,
    MethodRow,
    cost_columns,
    figure_column,
    shade,
    shade_by_interval,
)

FIGURES = [
    figure_column("CHAIR", "CHAIR_S", "lower"),
    figure_column("CHAIR", "F1", "higher"),
    *cost_columns(),
]
ROWS = [
    MethodRow("Base (greedy)", [50.0, 80.0, 1.0, 1.0], "greedy"),
    MethodRow("VCD", [59.0, 78.0, 2.01, 1.06], "sampling"),
    MethodRow("PAI", [42.4, 60.0, 2.14, 1.02], "greedy"),
    MethodRow("ReWEIGH", [39.0, 80.0, 1.02, 1.0], "greedy"),
    MethodRow("OPERA", [None, None, None, None], reason="its attention cannot be read"),
]
TABLE = Comparison("llava", FIGURES, ROWS, ["A note."], "paper")


@pytest.mark.parametrize(
    ("value", "base", "better", "wanted"),
    [
        (52.5, 50.0, "lower", ""),
        (52.6, 50.0, "lower", "worse"),
        (60.0, 50.0, "lower", "worse"),
        (60.1, 50.0, "lower", "worse-strong"),
        (47.4, 50.0, "lower", "better"),
        (39.0, 50.0, "lower", "better-strong"),
        (60.0, 80.0, "higher", "worse-strong"),
        (85.0, 80.0, "higher", "better"),
        (1.06, 1.0, "lower", "worse"),
        (None, 1.0, "lower", ""),
        (5.0, 0.0, "lower", ""),
        (5.0, 1.0, None, ""),
    ],
)
def test_shade(value, base, better, wanted):
    assert shade(value, base, better) == wanted


def test_the_papers_own_cells_are_shaded_as_in_the_paper():
    base = {"s": 52.60, "f1": 80.66, "hal": 19.02, "lat": 1.0}
    assert shade(59.00, base["s"], "lower") == "worse"
    assert shade(51.20, base["s"], "lower") == ""
    assert shade(42.40, base["s"], "lower") == "better"
    assert shade(75.55, base["f1"], "higher") == "worse"
    assert shade(32.07, base["hal"], "lower") == "worse-strong"
    assert shade(2.01, base["lat"], "lower") == "worse-strong"


def test_best_and_second_are_judged_as_printed():
    assert [TABLE.rank_of(i, 0) for i in range(5)] == ["", "", "second", "best", ""]
    assert [TABLE.rank_of(i, 1) for i in range(5)] == ["best", "second", "", "best", ""]
    assert {TABLE.rank_of(i, 2) for i in range(5)} == {""}, "cost has no winner"


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=2, max_size=6), st.booleans())
def test_places_twin(values, lower):
    figure = figure_column("g", "x", "lower" if lower else "higher", digits=1)
    table = Comparison("m", [figure], [MethodRow(str(i), [value]) for i, value in enumerate(values)])
    known = [round(float(f"{value:.1f}"), 1) for value in values if value is not None]
    for i, value in enumerate(values):
        place = table.rank_of(i, 0)
        if value is None or len(known) < 2:
            assert place == ""
            continue
        mine = round(float(f"{value:.1f}"), 1)
        ahead = {one for one in known if (one < mine if lower else one > mine)}
        assert place == {0: "best", 1: "second"}.get(len(ahead), "")


def test_markdown():
    text = render.markdown(TABLE)
    assert "| method | CHAIR_S ↓ | F1 ↑ | Lat. ↓ | Mem. ↓ |" in text
    assert "| ReWEIGH | **39.00** ▲▲ | **80.00** | 1.02× | 1.00× |" in text
    assert "| PAI | <u>42.40</u> ▲ | 60.00 ▼▼ | 2.14× ▼▼ | 1.02× |" in text
    assert "| OPERA | – | – | – | – |" in text
    assert "OPERA was not run: its attention cannot be read." in text
    assert "VCD: sampling" in text


def test_latex():
    text = render.latex(TABLE)
    assert r"\multicolumn{2}{c}{CHAIR} & \multicolumn{2}{c}{Cost}" in text
    assert r"\cmidrule(lr){2-3}\cmidrule(lr){4-5}" in text
    assert r"CHAIR\_S $\downarrow$" in text
    assert r"PAI & \cellcolor{blue!10}\underline{42.40} & \cellcolor{red!35}60.00" in text
    assert r"\cellcolor{red!35}2.01$\times$ & \cellcolor{red!15}1.06$\times$" in text
    assert text.count(r"\\") == 2 + len(ROWS)


def test_html_escapes_and_shades():
    page = html(Comparison("<b>model</b>", FIGURES, ROWS, shading="paper"))
    assert "<b>model</b>" not in page
    assert '<td class="better-strong best">39.00 ▲▲</td>' in page
    assert '<th colspan="2" class="group" scope="colgroup">CHAIR</th>' in page


def test_json_keeps_unrounded_values():
    rows = json.loads(json.dumps(TABLE.to_json()))["rows"]
    assert rows[2]["figures"]["CHAIR/CHAIR_S"] == {"value": 42.4, "shade": "better", "place": "second"}
    assert rows[4]["reason"]


@pytest.mark.parametrize("width", [30, 40, 60, 120])
def test_terminal_has_every_method_and_every_figure_at_any_width(width):
    from rich.console import Console

    stream = io.StringIO()
    Console(width=width, file=stream).print(render.terminal(TABLE))
    shown = stream.getvalue()
    assert "…" not in shown
    assert all(row.title in shown for row in ROWS)
    assert all(one.heading in shown for one in TABLE.columns)
    parts = shown.count("\n method ")
    assert all(shown.count(f"\n {row.title} ") == parts for row in ROWS)
    assert parts == 1 or width < 120


BASE_S, OWN_S = Estimate(value=50.0, low=45.0, high=55.0), Estimate(value=47.0, low=42.0, high=52.0)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (Estimate(value=-3.0, low=-5.0, high=-1.0), "better"),
        (Estimate(value=-3.0, low=-7.0, high=1.0), ""),
        (Estimate(value=-30.0, low=-40.0, high=0.0), ""),
        (Estimate(value=-30.0, low=-40.0, high=-20.0), "better-strong"),
        (Estimate(value=3.0, low=1.0, high=5.0), "worse"),
        (Estimate(value=-3.0), ""),
    ],
)
def test_a_shade_needs_an_interval_without_zero(change, wanted):
    assert shade_by_interval(change, 50.0 + change.value, 50.0, "lower") == wanted
    assert shade_by_interval(change, 50.0 + change.value, 50.0, None) == ""


def table(shading="interval"):
    change = Estimate(value=-3.0, low=-7.0, high=1.0)
    rows = [MethodRow("Base", [50.0], "greedy", intervals=[BASE_S])]
    rows.append(MethodRow("Own", [47.0], "greedy", intervals=[OWN_S], differences=[change]))
    return Comparison("m", FIGURES[:1], rows, shading=shading)


def test_every_face_has_intervals_and_differences():
    made = table()
    text = render.markdown(made)
    assert "| Own | **47.00** [42.00, 52.00] |" in text, "within chance: no arrow"
    assert "| Own | -3.00 [-7.00, +1.00] |" in text
    assert r"\textbf{47.00} {\scriptsize [42.00, 52.00]}" in render.latex(made)
    page = html(made)
    assert '<span class="range">[42.00, 52.00]</span>' in page
    assert '<td>-3.00<span class="range">[-7.00, +1.00]</span></td>' in page
    cell = made.to_json()["rows"][1]["figures"]["CHAIR/CHAIR_S"]
    assert (cell["low"], cell["high"], cell["difference_low"], cell["shade"]) == (42.0, 52.0, -7.0, "")


def test_the_papers_shading_is_an_option():
    assert table("paper").shade_of(1, 0) == "better"


def test_unfinished_texts_are_counted():
    texts = ["A dog runs on grass.", "A dog runs on the", "yes", 'He said "stop now."']
    assert unfinished(texts) == pytest.approx(1 / 3)
    assert unfinished(["no"]) == 0.0
