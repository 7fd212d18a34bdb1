"""How many commands and options there are; a new one must be worth the reader's time."""

from __future__ import annotations

import typer
from typer.main import get_command

from reweigh.cli.app import GLOBAL_OPTIONS, PANELS, app

MOST_COMMANDS = 21
MOST_OPTIONS = 180


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
    assert sum(counts.values()) + len(GLOBAL_OPTIONS) < MOST_OPTIONS, counts


def test_the_help_groups_every_command_once():
    names = [name for names in PANELS.values() for name in names]
    assert len(names) == len(set(names))
    assert list(PANELS) == ["Start", "Use", "Measure", "Paper", "Maintain"]
