"""Generate the page of all commands from their help when the site is built (a hook of mkdocs)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from reweigh.cli.app import GLOBAL_OPTIONS, app

HEAD = """# Commands

What `reweigh COMMAND --help` prints, on one page. Data goes to standard output, progress and errors to standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage, 70 a bug in the program, 130 stopped by Ctrl-C. `reweigh --traceback COMMAND`,
or `REWEIGH_TRACEBACK=1`, shows where an error came from. With any command, `--json` prints the result as
JSON, `--plugin FILE` loads decoders and benchmarks from a Python file, `-q` hides progress and notes, and `-v` shows what
transformers prints while it loads a model.
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


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "commands.md", content=reference()))
    return files
