"""Every example runs from start to end and prints something."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


def test_there_are_five():
    assert len(EXAMPLES) == 5


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path, capsys, monkeypatch, tmp_path):
    from reweigh.rivals import DECODERS

    monkeypatch.setattr(DECODERS, "_loaded", dict(DECODERS._loaded))  # one example registers its own
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert len(capsys.readouterr().out.splitlines()) >= 2
