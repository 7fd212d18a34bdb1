"""``reweigh describe``: describe images with ReWEIGH, beside the unedited model if asked."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def describe(
    model: str = common.MODEL,
    images: list[Path] = typer.Argument(help="One picture or several."),
    *,
    point: common.Point,
    question: common.Question,
    decoding: common.Decoding,
    compare: bool = typer.Option(
        False, "--compare", help="Show the unedited description too, with the changed words marked."
    ),
    weights: common.Weights,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Describe images with fewer things that are not in them."""
    common.require_pictures(model, images)
    session = point.attach(model, weights, force=force)
    from reweigh.rivals import decoder

    options = {**asdict(question), **decoding.options()}
    base = decoder("base", session.model, session.processor) if compare else None
    pages: list[dict[str, Any]] = []
    for image in images:
        edited = session.describe(image, **options)
        before = None if base is None else base.describe(image, **options)
        page = {"image": str(image), "reweigh": edited, "layer": session.layer, "beta": session.beta}
        pages.append(page if before is None else {**page, "base": before})
        if json:
            continue
        if len(images) > 1:
            typer.echo(f"{image}:")
        if before is None:
            typer.echo(edited)
        else:
            _side_by_side(before, edited)
    if json:
        common.emit_json(pages[0] if len(pages) == 1 else pages)


def _side_by_side(base: str, edited: str) -> None:
    from rich.table import Table

    from reweigh.results.coloured import terminal
    from reweigh.results.words import changed_words

    removed, added = changed_words(base, edited)
    columns = Table(show_lines=False, expand=True)
    columns.add_column(f"base ({len(base.split())} words)", ratio=1)
    columns.add_column(f"ReWEIGH ({len(edited.split())} words)", ratio=1)
    columns.add_row(terminal(base, removed), terminal(edited, added))
    common.console().print(columns)
    if not removed and not added:
        typer.echo("no word changed")
