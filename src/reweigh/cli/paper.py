"""``reweigh paper``: every table and figure of the paper beside what was measured here, from finished folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common

if TYPE_CHECKING:
    from reweigh.results.table import Table

app = typer.Typer(add_completion=False)


@app.command()
def paper(
    folders: list[Path] = typer.Argument(
        None, help="Folders of finished studies, ablations and comparisons; `study` by default."
    ),
    out: Path = typer.Option(Path("paper"), "--out", "-o", help="Folder for the pages."),
    as_json: bool = common.JSON,
) -> None:
    """Write one page per table and figure of the paper: published value, measured value, difference, and the order.

    Nothing is run; a page whose numbers are missing names the command that measures them.
    """
    from reweigh.errors import InputError
    from reweigh.paper.published.measured import read_results
    from reweigh.paper.published.pages import INDEX, write_pages

    chosen = folders or [Path("study")]
    for folder in chosen:
        if not folder.is_dir():
            raise InputError(
                f"{folder} is not a folder", hint="give folders of `reweigh study`, `ablate` or `compare`"
            )
    data = write_pages(read_results(chosen), out)
    if as_json:
        common.emit_json(data)
    else:
        common.console().print(_table(data).terminal())
    common.note(f"written: {out / INDEX}")


def _table(data: dict[str, Any]) -> Table:
    from reweigh.results.table import Cell, Column, Table

    rows: list[list[Cell]] = []
    for label, one in data.items():
        measured, order = one["measured"], one["orders"]
        state = (
            "not run" if measured is None and one["run"] else "" if measured is None else measured["model"]
        )
        agree = f"{order['agree']} of {order['compared']}" if order["compared"] else ""
        rows.append([label, one["title"], state, agree])
    return Table([Column("label"), Column("title"), Column("measured on"), Column("orders that agree")], rows)
