"""The tutorial's own decoder acts where a reader tries it."""

from __future__ import annotations

import runpy

from blocks import ROOT, read_blocks

import reweigh
from reweigh.families.load import load
from reweigh.rivals import DECODERS
from reweigh.world import path
from reweigh.world.scenes import scene


def test_it_changes_at_least_a_third_of_texts_and_cuts_none(tmp_path, monkeypatch):
    block = next(
        block for block in read_blocks(ROOT / "docs" / "decoders.md") if block.code.startswith("# my.py")
    )
    (tmp_path / "my.py").write_text(block.code)
    monkeypatch.setattr(DECODERS, "_loaded", dict(DECODERS._loaded))
    DECODERS.add("mine", runpy.run_path(str(tmp_path / "my.py"))["SecondThoughts"])
    model, processor = load(path())
    pictures = [scene("evaluation", index).image() for index in range(6)]
    base, mine = (reweigh.decoder(name, model, processor).describe(pictures) for name in ("base", "mine"))
    assert sum(a != b for a, b in zip(base, mine, strict=True)) >= 2
    assert all(text.endswith(".") for text in base + mine)
