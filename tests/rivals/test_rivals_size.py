"""A rival is a small thing: its own code stays under 150 lines, because what rivals share belongs to the seam."""

from __future__ import annotations

from pathlib import Path

import pytest

import reweigh.rivals
from reweigh.rivals import DECODERS

FOLDER = Path(reweigh.rivals.__file__).parent
SEVERAL = {"damro": ("damro", "outliers")}
"""Rivals whose method has more than one file; formulas alone (rules, fields, retrace) are not counted."""
LARGE = {"opera", "halc", "asd", "reweigh"}
"""Decoding loops of their own, a contrast that steers, and the method itself."""


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in LARGE])
def test_a_rivals_own_code_is_short(name):
    files = SEVERAL.get(name, (DECODERS[name].__module__.rpartition(".")[2],))
    lines = sum(len((FOLDER / f"{file}.py").read_text(encoding="utf-8").splitlines()) for file in files)
    assert lines < 150
