"""The ``reweigh`` command: a table of subcommands, and one way to turn errors into messages and exit codes.

Data goes to standard output, progress and errors to standard error. Exit code 0: done, 1: failed, 2: wrong usage.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from reweigh.errors import ReweighError

COMMANDS: dict[str, str] = {
    "demo": "reweigh.cli.demo",
    "describe": "reweigh.cli.describe",
    "trace": "reweigh.cli.trace",
    "check": "reweigh.cli.check",
    "doctor": "reweigh.cli.doctor",
    "serve": "reweigh.cli.serve",
    "calibrate": "reweigh.cli.calibrate",
    "table": "reweigh.cli.table",
    "eval": "reweigh.cli.eval",
    "data": "reweigh.cli.data",
    "tune": "reweigh.cli.tune",
    "points": "reweigh.cli.points",
    "ablate": "reweigh.cli.ablate",
    "study": "reweigh.cli.study",
    "paper": "reweigh.cli.paper",
    "compare": "reweigh.cli.compare",
    "steer": "reweigh.cli.steer",
    "speed": "reweigh.cli.speed",
    "world": "reweigh.cli.world",
}
"""Subcommand to module; a module holds ``app``, a Typer application with one or several commands."""


class LazyGroup(TyperGroup):
    """Imports a subcommand's module only when that subcommand (or the list of all) is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # caught here, because Typer would turn it into a silent exit
            typer.echo("stopped; the same command goes on from here where it can resume", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fewer hallucinated objects from vision-language models, at decoding time, without training.",
)


def _version(value: bool) -> None:
    if value:
        from reweigh import __version__

        typer.echo(f"reweigh {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; a known error becomes one message and exit code 1."""
    try:
        app()
    except ReweighError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


if __name__ == "__main__":
    main()
