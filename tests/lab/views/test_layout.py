"""A frame laid out by its keys, on every face."""

from __future__ import annotations

import csv
import re
from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Key, Row
from reweigh.lab.views.layout import Layout, tabulate, view
from reweigh.lab.views.table import Column

HEADS: dict[Key, Column] = {
    "chair_s": Column("CHAIR_S", "lower", 1, group="CHAIR"),
    "f1": Column("F1", "higher", 2, group="CHAIR"),
    "latency": Column("Lat.", "lower", 2, unit="×", group="Cost"),
}
VALUES = {
    ("llava", "base"): (52.6, 80.66, 1.0),
    ("llava", "vcd"): (59.0, 78.5, 2.01),
    ("llava", "ours"): (44.8, 80.85, 1.02),
    ("qwen", "base"): (31.6, 70.8, 1.0),
    ("qwen", "ours"): (25.4, 71.83, 1.01),
}
FRAME = Frame(
    Row({"model": model, "method": method, "figure": name}, Estimate(value, value - 1, value + 1))
    for (model, method), values in VALUES.items()
    for name, value in zip(HEADS, values, strict=True)
)
METHODS = {"method": {"base": "Base", "vcd": "VCD", "ours": "ReWEIGH"}}
BY_METHOD = Layout(
    title="Main",
    rows=["model", "method"],
    columns=["figure"],
    heads=HEADS,
    ranked="method",
    titles=METHODS,
    names={"model": "Model", "method": "Method"},
)
BY_FIGURE = Layout(
    title="Full", rows=["model", "figure"], columns=["method"], heads=HEADS, ranked="method", titles=METHODS
)
BY_MODEL = Layout(title="Side by side", rows=["method"], columns=["model", "figure"], heads=HEADS)


def test_rows_stand_in_blocks_and_each_block_has_its_best() -> None:
    lines = tabulate(FRAME, BY_METHOD).markdown().splitlines()
    assert lines[0] == "| Model | Method | CHAIR_S ↓ | F1 ↑ | Lat. ↓ |"
    assert lines[2] == (
        "| llava | Base | <u>52.6</u> [51.6, 53.6] | <u>80.66</u> [79.66, 81.66] | **1.00×** [0.00, 2.00] |"
    )
    assert lines[4].startswith("|  | ReWEIGH | **44.8** [43.8, 45.8] | **80.85**")
    assert lines[5].startswith("| qwen | Base |")
    assert tabulate(FRAME, BY_METHOD).rules == [3]


def test_figures_as_rows_keep_their_decimals_and_directions() -> None:
    table = tabulate(FRAME, BY_FIGURE)
    assert [column.name for column in table.columns] == ["model", "", "Base", "VCD", "ReWEIGH"]
    assert table.show(0, 4)[:3] == ("44.8", "[43.8, 45.8]", "best")
    assert table.show(1, 3)[:3] == ("78.50", "[77.50, 79.50]", "")
    assert table.show(2, 2)[:3] == ("1.00×", "[0.00, 2.00]", "best")
    assert table.rows[3][3] is None, "VCD was not run on the other model"


def test_models_as_columns_are_headings_above_the_figures() -> None:
    table = tabulate(FRAME, BY_MODEL)
    assert table.groups == [("llava", 3), ("qwen", 3)]
    latex = table.latex()
    assert r"& \multicolumn{3}{c}{llava} & \multicolumn{3}{c}{qwen} \\" in latex
    assert r"\cmidrule(lr){2-4}\cmidrule(lr){5-7}" in latex
    assert "llava CHAIR_S ↓" in table.markdown()


def test_every_face_has_the_same_numbers(tmp_path: Path) -> None:
    page = view(FRAME, BY_METHOD)
    console = Console(width=200, file=StringIO())
    console.print(page.terminal())
    faces = {one: page.write(tmp_path / f"page{one}").read_text() for one in (".html", ".md", ".tex", ".csv")}
    faces["terminal"] = console.file.getvalue()  # type: ignore[attr-defined]
    shown = {re.sub(r"0+$", "", f"{value:.2f}").rstrip(".") for values in VALUES.values() for value in values}
    for name, face in faces.items():
        assert all(number in face for number in shown), name
        assert "ReWEIGH" in face, name
    assert r"Model & Method & CHAIR$_S$ $\downarrow$" in faces[".tex"]
    assert faces[".tex"].count(r"\midrule") == 2


def test_csv_repeats_every_name_and_keeps_unrounded_ends() -> None:
    rows = list(csv.DictReader(StringIO(tabulate(FRAME, BY_METHOD).csv())))
    assert [row["Model"] for row in rows] == ["llava"] * 3 + ["qwen"] * 2
    assert float(rows[1]["Cost Lat. high"]) == 3.01


def test_a_key_with_one_value_has_no_column_unless_it_is_kept() -> None:
    alone = FRAME.pick(model="qwen")
    assert tabulate(alone, BY_METHOD).columns[0].name == "Method"
    assert tabulate(Frame(), BY_METHOD).rows == []


@settings(max_examples=50)
@given(st.data())
def test_every_estimate_stands_where_its_keys_say(data: st.DataObject) -> None:
    keys = {"a": "xyz", "b": "pq", "c": "uv"}
    every = [dict(zip(keys, values, strict=True)) for values in product(*keys.values())]
    chosen = data.draw(st.lists(st.sampled_from(every), min_size=1, unique_by=str))
    frame = Frame(Row(one, Estimate(float(number))) for number, one in enumerate(chosen))
    across = data.draw(st.sampled_from([["a"], ["b", "c"], ["c"]]))
    down = [key for key in keys if key not in across]
    table = tabulate(frame, Layout(rows=down, columns=across, figure="c", kept=down))
    assert sorted(cell.number for row in table.rows for cell in row if isinstance(cell, Estimate)) == [
        float(number) for number in range(len(chosen))
    ]
    for row in table.rows:
        named = dict(zip(down, row, strict=False))
        for column, cell in zip(table.columns[len(down) :], row[len(down) :], strict=True):
            if isinstance(cell, Estimate):
                keys_here = chosen[int(cell.number)]
                assert {key: keys_here[key] for key in down} == named
                assert set(f"{column.group} {column.name}".split()) == {keys_here[key] for key in across}


def test_an_unknown_key_is_refused() -> None:
    with pytest.raises(InputError, match="nothing"):
        tabulate(FRAME, Layout(rows=["nothing"], columns=["figure"]))
