"""``reweigh data``: the benchmarks' files, from their official source or your own copy."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.errors import InputError

app = typer.Typer(add_completion=False)


@app.command()
def data(
    name: str | None = typer.Argument(None, help="Dataset to download; without one, list what there is."),
    source: Path | None = typer.Option(None, "--from", help="Folder or file with your own copy."),
    check: bool = typer.Option(False, "--check", help="Compare its files with their checksums instead."),
) -> None:
    """List, download or check the files of benchmarks; files that are complete are not fetched again.

    With --check, the exit code is 1 if something is wrong.
    """
    if name is None:
        if check or source is not None:
            raise InputError(
                "--check and --from need the name of a dataset", hint="`reweigh data` lists them"
            )
        _list()
    elif check:
        _check(name)
    else:
        _get(name, source)


def _list() -> None:
    """List what can be downloaded, its size and license, and what is already here."""
    from reweigh.lab.tasks.data import data_root, describe
    from reweigh.lab.tasks.open import datasets
    from reweigh.lab.views.table import Cell, Column, Table

    rows = [describe(entry) for entry in datasets().values()]
    cells: list[list[Cell]] = [
        [
            row["name"],
            row["title"],
            _size(row["size"]),
            _kinds(row["checksums"]),
            row["license"],
            row["state"],
        ]
        for row in rows
    ]
    columns = [Column(name) for name in ("name", "what", "size", "checksum", "license", "here")]
    table = Table(columns, cells, caption=f"in {data_root()} (set REWEIGH_DATA to change it)")
    common.show(rows, lambda: common.console().print(table))


def _get(name: str, source: Path | None) -> None:
    from reweigh.lab.tasks import BENCHMARKS
    from reweigh.lab.tasks.data import get
    from reweigh.lab.tasks.open import dataset

    entry = dataset(name)
    common.note(f"{entry.title}; license: {entry.license}; {entry.page}")
    folder = get(entry, source=source)
    if entry.by_hand:
        typer.echo(f"note: {entry.by_hand}", err=True)
    common.show({"dataset": name, "folder": str(folder)}, lambda: typer.echo(folder))
    uses = [one for one in BENCHMARKS if entry in (BENCHMARKS[one].dataset, BENCHMARKS[one].image_dataset)]
    pictures = folder / entry.content[0] if len(entry.content) == 1 else folder
    ask = f"reweigh eval run MODEL -b {uses[0]} -o RUN" if uses else None
    common.finish(then=ask or f"reweigh calibrate MODEL {common.quoted(pictures)} -o TABLE")


def _check(name: str) -> None:
    from reweigh.lab.tasks.data import check, folder_of
    from reweigh.lab.tasks.open import dataset

    entry = dataset(name)
    problems = check(entry)
    if common.wants_json():
        common.emit_json({"dataset": name, "folder": str(folder_of(entry)), "problems": problems})
    elif problems:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"hint: reweigh data {name}", err=True)
    else:
        typer.echo(f"{name}: all {len(entry.files)} files are complete")
    if problems:
        raise typer.Exit(1)


def _size(size: int | None) -> str:
    from rich.filesize import decimal

    return "unknown" if size is None else decimal(size)


def _kinds(checksums: list[str]) -> str:
    return ", ".join(sorted({checksum.partition(":")[0] for checksum in checksums}))
