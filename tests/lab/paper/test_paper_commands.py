"""Every command that a page or a study prints is one that the real command line accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from reweigh.cli.app import app
from reweigh.lab.arms.ablate.arms import parse_arms
from reweigh.lab.arms.ablate.report import FIGURES
from reweigh.lab.paper.protocol import protocol
from reweigh.lab.paper.published import published
from reweigh.lab.runs.task import open_task

SOURCE = Path(__file__).parents[3] / "src" / "reweigh" / "lab" / "paper"
PRINTED = sorted({command for table in published().values() for command in table.run})
MENTIONED = sorted(
    {
        found
        for path in SOURCE.rglob("*.py")
        for found in re.findall(r"`(reweigh [a-z][^`{}]*)`", path.read_text(encoding="utf-8"))
    }
)


def parse(command: str) -> Any:
    """Parse a command down to its leaf, as the shell would hand it over; nothing is run."""
    program, *arguments = shlex.split(command)
    assert program == "reweigh"
    leaf: Any = get_command(app)
    name = program
    while hasattr(leaf, "get_command"):
        name, *arguments = arguments
        leaf = leaf.get_command(None, name)
        assert leaf is not None, f"no command {name}"
    return leaf.make_context(name, arguments)


@pytest.mark.parametrize("command", PRINTED)
def test_a_command_of_a_page_parses_and_names_what_a_model_needs(command: str) -> None:
    given = parse(command).params
    if {"model", "benchmark"} <= set(given):
        assert given["benchmark"], "no model but the embedded one has a benchmark of its own"
    if command.startswith("reweigh study"):
        assert given["calibration"] is not None


@pytest.mark.parametrize("command", MENTIONED)
def test_a_command_named_in_a_sentence_exists(command: str) -> None:
    name = command.split()[1].rstrip(".,;")
    assert get_command(app).get_command(None, name) is not None, command  # type: ignore[arg-type]


def test_a_command_that_does_not_exist_is_noticed() -> None:
    for wrong in (
        "reweigh eval report runs/x",
        "reweigh ablate with the arms",
        "reweigh study scale MODEL --no-such 1",
    ):
        with pytest.raises(Exception, match=r"No such|no command|unexpected|No option"):
            parse(wrong)


def test_every_table_with_numbers_has_a_command_or_says_why_not() -> None:
    silent = {label for label, table in published().items() if not table.run}
    assert silent == {
        *(
            "fig:method",
            "tab:model-checkpoints",
            "tab:evaluation-inventory",
            "alg:method",
            "tab:ablation-definitions",
        ),
        "tab:ablation-amber-detail",
    }
    assert published()["tab:ablation-amber-detail"].not_measured


def test_the_arms_of_the_readout_table_are_those_it_shows() -> None:
    [command] = published()["tab:normalized-readout-control"].run
    assert {*parse_arms(parse(command).params["arms"]), "base"} == set(protocol()["readouts"]["arms"])


def test_ablations_are_offered_only_for_benchmarks_that_they_accept(tmp_path: Path) -> None:
    asked = [shlex.split(command) for command in PRINTED if command.startswith("reweigh ablate")]
    names = {words[words.index("-b") + 1] for words in asked}
    assert names == {"chair"}
    task = open_task("world", None, options={"scenes": 1}, drawings=tmp_path)
    task.require(FIGURES, "an ablation")  # the world gives the same figures as chair
