"""The ``reweigh`` command: a table of subcommands, and one way to turn errors into messages and exit codes.

Data goes to standard output, progress and errors to standard error. Exit code 0: done, 1: failed, 2: wrong usage, 70: a bug
in reweigh, 128 plus the number of a signal: stopped by it (130 for Ctrl-C).
"""

from __future__ import annotations

import copy
import difflib
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup
from typer.main import get_command

from reweigh import __version__
from reweigh.cli import common, start
from reweigh.errors import ReweighError
from reweigh.files.outputs import overwrite
from reweigh.progress import be_quiet

TRACEBACK = "REWEIGH_TRACEBACK"
BUG = 70
"""Exit code for an unexpected error."""
OF_WRITING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Errors that a full or broken device gives, without a name if it is the standard output."""

PANELS: dict[str, tuple[str, ...]] = {
    "Start": ("demo", "doctor"),
    "Use": ("describe", "serve", "calibrate", "table"),
    "Measure": ("eval", "compare", "tune", "ablate"),
    "Paper": ("study", "reproduce"),
    "Maintain": ("data", "world"),
}
"""Subcommands as the help groups them; each has a module in ``reweigh.cli`` with ``app``, a Typer application."""
COMMANDS = {name: f"reweigh.cli.{name}" for names in PANELS.values() for name in names}


class LazyGroup(TyperGroup):
    """Imports a subcommand's module only when that subcommand, or the list of all, is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command: Any = get_command(importlib.import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        command.rich_help_panel = next(panel for panel, names in PANELS.items() if cmd_name in names)
        _add_options(command, [one for one in self.params if one.name in GLOBAL_OPTIONS])
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], COMMANDS, n=2, cutoff=0.6)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; reweigh -h lists them"
            ctx.fail(f"{args[0]!r} is not a command{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # caught here, because Typer would turn it into a silent exit
            start.tell()
            raise typer.Exit(start.exit_code()) from None


GLOBAL_OPTIONS = ("json", "plugin", "replace", "verbose", "quiet")
"""Options of `reweigh` itself that may also follow any command."""


def _add_options(command: Any, options: list[Any]) -> None:
    """Add options that act through their callbacks to a command and to those below it."""
    for below in getattr(command, "commands", {}).values():
        _add_options(below, options)
    if not hasattr(command, "commands"):
        own = [copy.copy(one) for one in options]
        for one in own:
            one.expose_value = False
            one.hidden = True  # the help of `reweigh` has them once
        command.params = [*command.params, *own]
        command.epilog = "--json, --plugin, --overwrite, --verbose and --quiet follow any command: reweigh -h"


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fewer hallucinated objects from vision-language models, at decoding time, without training.",
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"reweigh {__version__}")
        raise typer.Exit


def _switch(turn: Callable[[bool], None]) -> Callable[[typer.Context, bool], None]:
    """Make the callback of a flag that may stand before or after the command; leaving it out after undoes nothing."""

    def apply(context: typer.Context, value: bool) -> None:
        if value or context.parent is None:
            turn(value)

    return apply


def _load_plugins(context: typer.Context, value: list[Path]) -> None:
    from reweigh.cli.plugin import load_plugin

    for path in value or ():
        load_plugin(path)


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
    traceback: bool = typer.Option(
        False, "--traceback", help=f"Show where an error came from (or set {TRACEBACK}=1)."
    ),
    json: bool = typer.Option(
        False, "--json", callback=_switch(common.be_json), help="Print the result as JSON instead of text."
    ),
    plugin: list[Path] = typer.Option(
        [],
        "--plugin",
        callback=_load_plugins,
        metavar="FILE",
        help="Python file with decoders or benchmarks of your own; repeatable.",
    ),
    replace: bool = typer.Option(
        False,
        "--overwrite",
        callback=_switch(overwrite),
        help="Replace files that reweigh did not write, or a recorded operating point.",
    ),
    verbose: bool = typer.Option(
        False,
        "--verbose",
        "-v",
        callback=_switch(common.be_verbose),
        help="Also show the messages of transformers while it loads a model.",
    ),
    quiet: bool = typer.Option(
        False,
        "--quiet",
        "-q",
        callback=_switch(be_quiet),
        help="Show no progress and no notes, only warnings and errors.",
    ),
) -> None:
    if traceback:
        os.environ[TRACEBACK] = "1"


def main() -> None:
    """Run the command line; a known error becomes one message and exit code 1, an unexpected one asks for a report."""
    for stream in (sys.stdout, sys.stderr):  # escape characters that the terminal cannot show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except SystemExit as ended:
        if start.was_stopped() and ended.code == 128 + signal.SIGINT:  # Typer's, if no command had started
            _end_stopped()
        raise
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except ReweighError as error:
        _show_traceback()
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno is None or (error.filename is None and error.errno not in OF_WRITING):
            _report(error)
        _show_traceback()
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else error.filename
        typer.echo(f"error: {name or 'a file or the standard output'}: {error.strerror}", err=True)
        if error.filename is None:  # what is left to write would fail again at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if start.was_stopped():  # something turned the signal into an error of its own
            _end_stopped()
        _report(error)


def _end_stopped() -> NoReturn:
    start.tell()
    sys.exit(start.exit_code())


def _report(error: Exception) -> NoReturn:
    """Print what a bug report of an unexpected error needs, or the line of the user's own plugin, and exit."""
    from reweigh.cli.plugin import plugin_line

    _show_traceback()
    said = " ".join(str(error).split())[:300]
    if where := plugin_line(error):
        typer.echo(
            f"error: {where}: {type(error).__name__}: {said}\n  hint: {TRACEBACK}=1 shows how it got there",
            err=True,
        )
        sys.exit(1)
    typer.echo(
        f"error: {type(error).__name__}: {said}\n  this is a bug in reweigh {__version__}; please report it with "
        f"the output of {TRACEBACK}=1. Finished work is kept",
        err=True,
    )
    sys.exit(BUG)


def _show_traceback() -> None:
    if os.environ.get(TRACEBACK, "") not in ("", "0"):
        import traceback

        traceback.print_exc()
