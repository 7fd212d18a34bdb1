"""Groups of options are plain options on the command line; a folder of images is given alike to every benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from reweigh.cli.options import grouped, split_images


@dataclass(frozen=True, kw_only=True)
class Size:
    width: int = typer.Option(2, min=1, help="How wide.")
    name: str | None = typer.Option(None, "--name", "-n", help="What it is called.")


app = typer.Typer(add_completion=False)
seen: list[tuple[str, Size, int, bool]] = []


@app.command()
@grouped
def draw(
    what: str = typer.Argument(help="What to draw."),
    *,
    first: int = typer.Option(0, help="The first."),
    size: Size,
    last: bool = typer.Option(False, "--last", help="The last."),
) -> None:
    """Draw it."""
    seen.append((what, size, first, last))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["it"], ("it", Size(width=2, name=None), 0, False)),
        (["it", "-n", "x", "--width", "7", "--last"], ("it", Size(width=7, name="x"), 0, True)),
        (["--first", "3", "--name", "x", "it"], ("it", Size(width=2, name="x"), 3, False)),
    ],
)
def test_a_command_is_given_its_group(arguments, expected):
    seen.clear()
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [expected]


def test_the_options_keep_their_checks():
    done = CliRunner().invoke(app, ["it", "--width", "0"])
    assert done.exit_code == 2


def test_the_help_spells_the_group_out_in_its_place():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "120", "TERM": "dumb"}).output
    order = [
        shown.index(text)
        for text in ("Draw it.", "The first.", "How wide.", "What it is called.", "The last.")
    ]
    assert order == sorted(order)
    assert "size" not in shown


@pytest.mark.parametrize(
    ("benchmark", "given", "options", "folder"),
    [
        ("chair", "train2014/", {}, Path("train2014/")),
        ("chair", "100", {"images": 100}, None),  # how many are drawn
        ("pope", "val2014", {}, Path("val2014")),
        ("objects", "mine", {"images": "mine"}, None),  # it opens the folder itself
        (None, "mine", {}, Path("mine")),  # of a run folder
    ],
)
def test_a_folder_is_taken_out_and_a_number_is_not(benchmark, given, options, folder):
    assert split_images(benchmark, [f"images={given}"]) == (options, folder)
