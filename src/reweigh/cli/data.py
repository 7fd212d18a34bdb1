"""``reweigh data``: the benchmarks' files, from their official source or your own copy."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Download and check the benchmarks' files."
)


@app.command("list")
def list_datasets(as_json: bool = common.JSON) -> None:
    """List what can be downloaded, its size and licence, and what is already here."""
    from reweigh.benchmarks.data import data_root, listing
    from reweigh.results.table import Cell, Column, Table

    rows = listing()
    if as_json:
        common.emit_json(rows)
        return
    cells: list[list[Cell]] = [
        [
            row["name"],
            row["title"],
            _size(row["size"]),
            _checked(row["checksums"]),
            row["licence"],
            row["state"],
        ]
        for row in rows
    ]
    columns = [Column(name) for name in ("name", "what", "size", "checksum", "licence", "here")]
    table = Table(columns, cells, caption=f"in {data_root()} (set REWEIGH_DATA to change it)")
    common.console().print(table)


@app.command()
def get(
    name: str = typer.Argument(help="Name of the dataset, see `reweigh data list`."),
    source: Path | None = typer.Option(None, "--from", help="Folder or file with your own copy."),
    as_json: bool = common.JSON,
) -> None:
    """Download a dataset, or resume an interrupted download; prints its folder."""
    from reweigh.benchmarks.data import dataset
    from reweigh.benchmarks.data import get as fetch
    from reweigh.progress import bar

    entry = dataset(name)
    common.note(f"{entry.title}; licence: {entry.licence}; {entry.page}")
    with bar(entry.name, total=entry.size if source is None else None, unit="B") as progress:
        folder = fetch(entry, source=source, advance=progress.update)
    if entry.by_hand:
        typer.echo(f"note: {entry.by_hand}", err=True)
    if as_json:
        common.emit_json({"dataset": name, "folder": str(folder)})
    else:
        typer.echo(folder)


@app.command()
def check(
    name: str = typer.Argument(help="Name of the dataset."),
    as_json: bool = common.JSON,
) -> None:
    """Compare a dataset's files with their checksums; exit code 1 if something is wrong."""
    from reweigh.benchmarks.data import check as inspect
    from reweigh.benchmarks.data import dataset, folder_of

    entry = dataset(name)
    problems = inspect(entry)
    if as_json:
        common.emit_json({"dataset": name, "folder": str(folder_of(entry)), "problems": problems})
    elif problems:
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"hint: reweigh data get {name}", err=True)
    else:
        typer.echo(f"{name}: all {len(entry.files)} files are complete")
    if problems:
        raise typer.Exit(1)


def _size(size: int | None) -> str:
    if size is None:
        return "unknown"
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"


def _checked(checksums: list[str]) -> str:
    kinds = sorted({checksum.partition(":")[0] for checksum in checksums})
    return ", ".join(kinds)
