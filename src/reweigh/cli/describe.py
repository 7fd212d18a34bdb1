"""``reweigh describe``: describe an image with ReWEIGH, beside the unedited model if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common

app = typer.Typer(add_completion=False)


@app.command()
def describe(
    model: str = common.MODEL,
    image: Path = typer.Argument(help="The picture."),
    table: str = common.TABLE,
    layer: int = common.LAYER,
    beta: float = common.BETA,
    prompt: str = typer.Option("Please describe this image in detail.", help="What the model is asked."),
    template: str = typer.Option(
        None, help="Prompt template with {prompt}, for processors without a chat template."
    ),
    max_new_tokens: int = typer.Option(512, min=1, help="Longest description."),
    compare: bool = typer.Option(
        False, "--compare", help="Show the unedited description too, with the changed words marked."
    ),
    dtype: str = common.DTYPE,
    device: str = common.DEVICE,
    revision: str = common.REVISION,
    trust_remote_code: bool = common.REMOTE,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Describe an image with fewer things that are not in it."""
    where, block, bound = common.operating_point(model, table, layer, beta)
    loaded, processor = common.load_model(
        model, dtype=dtype, device=device, revision=revision, trust_remote_code=trust_remote_code
    )
    from reweigh.intervene.attach import attach
    from reweigh.intervene.attachment import describe as plain

    attached = attach(loaded, processor, table=where, beta=bound, layer=block, force=force)
    options: dict[str, Any] = {"max_new_tokens": max_new_tokens, "template": template}
    edited = attached.describe(image, prompt, **options)
    base = plain(loaded, processor, image, prompt, **options) if compare else None
    if json:
        common.emit_json(
            {"reweigh": edited, "layer": attached.layer, "beta": attached.beta}
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
    shown = Table(show_lines=False, expand=True)
    shown.add_column(f"base ({len(base.split())} words)", ratio=1)
    shown.add_column(f"ReWEIGH ({len(edited.split())} words)", ratio=1)
    shown.add_row(terminal(base, removed), terminal(edited, added))
    common.console().print(shown)
    if not removed and not added:
        typer.echo("no word changed")
