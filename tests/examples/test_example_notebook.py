"""The notebook is one that tools can read, carries its outputs, and its cells still run and show the same kinds of thing."""

from __future__ import annotations

import copy
import json
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def kinds(cell):
    """What a cell left: its streams and the forms of its value."""
    return [output.get("name") or sorted(output["data"]) for output in cell["outputs"]]


def test_it_is_a_notebook():
    assert (NOTEBOOK["nbformat"], NOTEBOOK["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in NOTEBOOK["cells"]}) == len(NOTEBOOK["cells"])
    for cell in NOTEBOOK["cells"]:
        assert cell["cell_type"] in ("markdown", "code")
        assert all(isinstance(line, str) for line in cell["source"])


def test_it_carries_its_outputs():
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    shown = [kind for cell in CODE for kind in kinds(cell)]
    assert shown.count(["text/html", "text/plain"]) == 2  # the session and the trace
    assert shown.count(["image/png", "text/plain"]) == 2  # the scene and its map
    assert all(cell["outputs"] for cell in CODE)


@pytest.mark.slow
def test_its_cells_run():
    run = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))["run"]
    emptied = copy.deepcopy(NOTEBOOK)
    for cell in emptied["cells"]:
        cell.pop("outputs", None)
    again = [cell for cell in run(emptied)["cells"] if cell["cell_type"] == "code"]
    assert [kinds(cell) for cell in again] == [kinds(cell) for cell in CODE], (
        "run: python scripts/notebook.py"
    )


def test_a_failing_cell_is_not_hidden():
    run = runpy.run_path(str(ROOT / "scripts" / "notebook.py"))["run"]
    with pytest.raises(ZeroDivisionError):
        run({"cells": [{"cell_type": "code", "source": ["1 / 0"]}]})
