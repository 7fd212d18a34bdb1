"""``reweigh describe``: describe an image with ReWEIGH, beside the unedited model if asked."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def describe(
    model: str = common.MODEL,
    image: Path = typer.Argument(help="The picture."),
    *,
    point: common.Point,
    question: common.Question,
    compare: bool = typer.Option(
        False, "--compare", help="Show the unedited description too, with the changed words marked."
    ),
    weights: common.Weights,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Describe an image with fewer things that are not in it."""
    common.require_pictures(model, [image])
    session = point.attach(model, weights, force=force)
    from reweigh.decoders import decoder

    question_options = asdict(question)
    edited = session.describe(image, **question_options)
    base = (
        decoder("base", session.model, session.processor).describe(image, **question_options)
        if compare
        else None
    )
    if json:
        common.emit_json(
            {"reweigh": edited, "layer": session.layer, "beta": session.beta}
            | ({"base": base} if compare else {})
        )
    elif base is None:
        typer.echo(edited)
    else:
        _side_by_side(base, edited)


def _side_by_side(base: str, edited: str) -> None:
    from rich.table import Table

    from reweigh.report.coloured import terminal
    from reweigh.report.words import changed_words

    removed, added = changed_words(base, edited)
    columns = Table(show_lines=False, expand=True)
    columns.add_column(f"base ({len(base.split())} words)", ratio=1)
    columns.add_column(f"ReWEIGH ({len(edited.split())} words)", ratio=1)
    columns.add_row(terminal(base, removed), terminal(edited, added))
    common.console().print(columns)
    if not removed and not added:
        typer.echo("no word changed")
