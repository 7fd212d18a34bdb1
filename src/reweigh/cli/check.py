"""``reweigh check``: mark the words of a text that the image does not support."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.confidence import show_confidence
from reweigh.cli.groups import grouped
from reweigh.errors import InputError
from reweigh.text import DESCRIBE

if TYPE_CHECKING:
    from reweigh.method.check import Checked

app = typer.Typer(add_completion=False)

MARKS = ".,;:!?()\"'“”"
"""What stands at the ends of words in a text and belongs to none."""


@app.command()
@grouped
def check(
    model: str = common.MODEL,
    image: Path = typer.Argument(help="The picture."),
    *,
    text: str | None = typer.Option(
        None, help="The text to check; the model's own description if not given."
    ),
    table: str | None = common.TABLE,
    layer: int | None = common.LAYER,
    prompt: str = typer.Option(DESCRIBE, help="The prompt the image is shown with."),
    template: str = common.TEMPLATE,
    signal: str = typer.Option(
        "strength",
        help="What tells: strength (evidence against its reference) or confidence (internal confidence, no table).",
    ),
    threshold: float | None = typer.Option(
        None,
        min=0.0,
        help="Mark words whose strength is at least this (0.5), or whose confidence is below it (0.1).",
    ),
    word: list[str] = typer.Option(
        [],
        "--word",
        "-w",
        help="With confidence: a word to look at, repeatable; all words but function words if none.",
    ),
    out: Path | None = typer.Option(
        None, "--out", "-o", help="With confidence: folder for a heat map of each word that is looked at."
    ),
    weights: common.Weights,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Tell which words of a description lack evidence in the image; nothing is edited."""
    common.require_pictures(model, [image])
    if signal == "confidence":
        if table is not None or layer is not None:
            raise InputError("the signal 'confidence' has no --table and no --layer", hint="leave them out")
        loaded = weights.load(model)
        low = 0.1 if threshold is None else threshold
        shown: dict[str, Any] = {"prompt": prompt, "template": template, "json": json}
        show_confidence(loaded, image, text, words=word, out=out, threshold=low, **shown)
        return
    if signal != "strength" or word or out is not None:
        raise InputError(
            f"the signal {signal!r} "
            + ("has no --word and no --out" if signal == "strength" else "is unknown"),
            hint="--signal confidence has both; the other one is strength",
        )
    where = common.table_of(model, table, layer)
    loaded = weights.load(model)
    from reweigh.engines.transformers.check import check as run

    options: dict[str, Any] = {"prompt": prompt, "template": template}
    found = run(*loaded, image, text, table=where, layer=layer, force=force, **options)
    if json:
        common.emit_json(found.to_json())
    else:
        _print(found, 0.5 if threshold is None else threshold)


def _print(found: Checked, threshold: float) -> None:
    from reweigh.results.coloured import Span, terminal

    weak = found.weak(threshold)
    common.console().print(terminal(found.text, [Span(one.start, one.end, "hallucinated") for one in weak]))
    for one in weak:
        typer.echo(f"  {one.text.strip(MARKS) or one.text}: strength {one.strength:.2f}")
    if not weak:
        typer.echo(f"  no registered word lacks its usual evidence by a strength of {threshold:g} or more")
