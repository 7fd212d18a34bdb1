"""Groups of options: on the command line they are plain options, in their place among the others."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import typer
from typer.testing import CliRunner

from reweigh.cli.groups import grouped


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
