"""How many commands and options there are; a new one must be worth the reader's time."""

from __future__ import annotations

import re

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from reweigh.cli.app import GLOBAL_OPTIONS, PANELS, app

MOST_COMMANDS = 20
MOST_OPTIONS = 170
SCREEN = 60
"""Lines of a terminal of 100 columns."""


def leaves(command, place=()):
    """Each command that does something, by its name."""
    if not hasattr(command, "list_commands"):
        yield " ".join(place), command
        return
    context = typer.Context(command)
    for name in command.list_commands(context):
        yield from leaves(command.get_command(context, name), (*place, name))


def own_options(command):
    """The options that a command has beyond those of all commands."""
    return [
        one.name
        for one in command.params
        if one.param_type_name == "option" and one.name not in GLOBAL_OPTIONS
    ]


def test_commands_and_options_stay_few():
    found = {name: own_options(command) for name, command in leaves(get_command(app))}
    assert len(found) <= MOST_COMMANDS, sorted(found)
    counts = {name: len(options) for name, options in found.items()}
    assert sum(counts.values()) + len(GLOBAL_OPTIONS) <= MOST_OPTIONS, counts


def test_the_help_groups_every_command_once():
    names = [name for names in PANELS.values() for name in names]
    assert len(names) == len(set(names))
    assert list(PANELS) == ["Start", "Use", "Measure", "Paper", "Maintain"]


@pytest.mark.parametrize("name", [name for name, _ in leaves(get_command(app))])
def test_a_commands_help_fits_a_screen_and_has_its_own_options_only(name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 100)
    shown = CliRunner().invoke(app, [*name.split(), "-h"]).stdout
    assert len(shown.splitlines()) <= SCREEN
    assert not re.search(r"^. --(json|plugin|overwrite|verbose|quiet) ", shown, re.MULTILINE)


def test_options_of_every_command_are_in_the_first_help_and_follow_any_command():
    shown = CliRunner().invoke(app, ["-h"]).stdout
    for flag in ("--json", "--plugin", "--overwrite", "--verbose", "--quiet"):
        assert shown.count(flag) == 1
    assert CliRunner().invoke(app, ["study", "list", "--quiet", "--json"]).stdout.startswith("[")
