"""README's table is what scripts/figures.py writes from a run's own JSON."""

from __future__ import annotations

import json
import runpy

import pytest
from blocks import ROOT

script = runpy.run_path(str(ROOT / "scripts" / "figures.py"))
README = (ROOT / "README.md").read_text(encoding="utf-8")
KEPT = json.loads((ROOT / "tools" / "figures.json").read_text(encoding="utf-8"))


def test_the_table_is_written_from_the_kept_figures() -> None:
    assert script["with_table"](README, KEPT) == README, "run: python scripts/figures.py --table"


def test_every_figure_stands_in_its_row_under_its_heading() -> None:
    lines = [line for line in script["table"](KEPT).splitlines() if line.startswith("| ")]
    heads, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert heads[1:] == list(script["COLUMNS"].values())
    assert [row[0] for row in rows] == ["base", "ReWEIGH", "difference"]
    for row in rows:
        for key, cell in zip(script["COLUMNS"], row[1:], strict=True):
            assert float(cell.split()[0]) == pytest.approx(KEPT["rows"][row[0]][key][0], abs=0.051)


def test_other_figures_would_be_noticed() -> None:
    changed = json.loads(json.dumps(KEPT))
    changed["rows"]["ReWEIGH"]["chair_i"][0] += 1
    assert script["with_table"](README, changed) != README


def test_the_differences_are_differences() -> None:
    rows = KEPT["rows"]
    for name, (value, low, high) in rows["difference"].items():
        assert value == pytest.approx(rows["ReWEIGH"][name][0] - rows["base"][name][0], abs=2e-4)
        assert low <= value <= high
    assert KEPT["scenes"] >= 800
