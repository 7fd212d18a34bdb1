"""The tutorial's decoder and commands, as printed: the decoder acts, and nothing is cut without a word."""

from __future__ import annotations

import csv

import pytest
from blocks import ROOT, commands, read_blocks
from typer.testing import CliRunner

import reweigh
from reweigh.cli.app import app
from reweigh.rivals import DECODERS

BLOCKS = list(read_blocks(ROOT / "docs" / "decoders.md"))


@pytest.fixture
def tutorial(tmp_path, monkeypatch):
    """The folder in which a reader has saved my.py."""
    [code] = [block.code for block in BLOCKS if block.code.startswith("# my.py")]
    (tmp_path / "my.py").write_text(code)
    monkeypatch.setattr(DECODERS, "_loaded", dict(DECODERS._loaded))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_three_commands_end_with_a_table_of_a_decoder_that_acts(tutorial):
    [printed] = [
        block.code for block in BLOCKS if block.code.startswith("reweigh world draw --out my-scenes")
    ]
    for words in commands(printed):
        ended = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
    assert "Decoding and texts" in ended.output
    assert "12 records are too few, 100 are needed" in " ".join(ended.output.split())
    frame = reweigh.read(tutorial / "mine")
    assert frame.one(arm="mine", figure="unchanged").number <= 100 * 2 / 3
    for arm in ("base", "vcd", "reweigh", "mine"):
        assert frame.one(arm=arm, figure="unfinished").value == 0
        assert frame.one(arm=arm, figure="empty").value == 0


def test_a_method_is_compared_with_another_one_and_every_answer_is_a_row(tutorial):
    arguments = [
        "compare",
        "world",
        "-m",
        "base,cut,push",
        "--against",
        "cut",
        "--option",
        "scenes=3",
        "--out",
        "pairs",
    ]
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert ended.exit_code == 0, ended.output
    assert "Difference to Cut only (control)" in ended.output
    frame = reweigh.read(tutorial / "pairs")
    assert frame.about["reference"] == "cut"
    base, cut = (frame.one(arm=arm, figure="length", against=None).number for arm in ("base", "cut"))
    assert frame.one(arm="base", figure="length", against="cut").number == pytest.approx(base - cut)
    with (tutorial / "pairs" / "pictures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert len({(row["method"], row["picture"]) for row in rows}) == 9
    assert sum(int(row["captions"]) for row in rows) == 9
    assert all(row["text"].endswith(".") for row in rows)
    unknown = CliRunner().invoke(app, [*arguments, "--against", "vcd"])
    assert "vcd" in str(unknown.exception)


def test_a_limit_that_cuts_every_text_is_named_for_every_method(tutorial):
    arguments = [
        "compare",
        "world",
        "-m",
        "base,cut",
        "--option",
        "scenes=3",
        "--max-new-tokens",
        "16",
        "--out",
        "cut",
    ]
    ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
    said = " ".join(ended.output.split())
    assert "Unfinished texts on world: Base (greedy) 100%, Cut only (control) 100%." in said
    assert "raise --max-new-tokens" in said
