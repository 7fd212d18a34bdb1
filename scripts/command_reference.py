"""Write docs/commands.md from what every command says of itself with --help.

python scripts/command_reference.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command

from reweigh.cli.app import GLOBAL_OPTIONS, app
from reweigh.files.artifacts import write_text

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
HEAD = """# Commands

What `reweigh COMMAND --help` says, on one page; `scripts/command_reference.py` writes it and a test compares the two.
Data go to standard output, progress and errors to standard error. Exit codes: 0 done, 1 failed, 2 wrong usage, 70 a bug of
the program, 130 stopped by Ctrl-C. `reweigh --traceback COMMAND`, or `REWEIGH_TRACEBACK=1`, shows where an error came from.
Before or behind any command, `-q` shows neither progress nor notes (warnings and errors stay), `-v` also what transformers
says.
"""


def cell(text: str) -> str:
    """Text for one cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def table(title: str, records: list[tuple[str, str]]) -> Iterator[str]:
    if records:
        yield f"| {title} | |\n|---|---|\n" + "\n".join(
            f"| `{' '.join(name.split())}` | {cell(text)} |" for name, text in records
        )


def describe(command: Any, context: typer.Context) -> Iterator[str]:
    """Paragraphs on one command and on those below it."""
    usage = [context.command_path, *command.collect_usage_pieces(context)]
    yield f"{'#' * len(context.command_path.split())} {context.command_path}"
    yield from (" ".join(part.split()) for part in (command.help or "").split("\n\n") if part.strip())
    parameters = [
        entry for entry in command.get_params(context) if entry.name not in ("help", *GLOBAL_OPTIONS)
    ]
    records = [(entry, entry.get_help_record(context)) for entry in parameters]
    if not hasattr(command, "commands"):
        yield f"```text\n{' '.join(usage)}\n```"
    for kind in ("argument", "option"):
        yield from table(kind, [text for entry, text in records if entry.param_type_name == kind and text])
    if hasattr(command, "commands"):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            yield from describe(below, typer.Context(below, info_name=name, parent=context))


def reference() -> str:
    """The whole page."""
    root: Any = get_command(app)
    context = typer.Context(root, info_name="reweigh")
    parts = [HEAD.strip()]
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        parts += describe(command, typer.Context(command, info_name=name, parent=context))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    write_text(PAGE, reference())
