"""``reweigh check``: mark the words of a text that the image does not support."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.text import DESCRIBE

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def check(
    model: str = common.MODEL,
    image: Path = typer.Argument(help="The picture."),
    *,
    text: str | None = typer.Option(
        None, help="The text to check; the model's own description if not given."
    ),
    table: str = common.TABLE,
    layer: int = common.LAYER,
    prompt: str = typer.Option(DESCRIBE, help="The prompt the image is shown with."),
    template: str = common.TEMPLATE,
    threshold: float = typer.Option(
        0.5, min=0.0, help="Mark words whose strength is at least this (0 to 1)."
    ),
    weights: common.Weights,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Tell which words of a description lack evidence in the image; nothing is edited."""
    where = common.table_of(model, table)
    loaded, processor = weights.load(model)
    from reweigh.decoders import decoder
    from reweigh.engines.transformers.check import check as run
    from reweigh.engines.transformers.pairing import pair
    from reweigh.families.anatomy import find_anatomy
    from reweigh.report.coloured import Span, terminal

    # a table that does not fit is refused before a description is waited for
    fitting, _ = pair(find_anatomy(loaded), processor, where, layer=layer, force=force)
    if text is None:
        text = decoder("base", loaded, processor).describe(image, prompt, template=template)
    found = run(
        loaded,
        processor,
        image,
        text,
        table=fitting,
        prompt=prompt,
        template=template,
        force=force,
    )
    if json:
        common.emit_json(found.to_json())
        return
    weak = [word for word in found.words() if word.strength is not None and word.strength >= threshold]
    spans = [Span(word.start, word.end, "hallucinated") for word in weak]
    common.console().print(terminal(text, spans))
    for word in weak:
        typer.echo(f"  {word.text}: strength {word.strength:.2f}")
    if not weak:
        typer.echo(f"  no registered word lacks its usual evidence by a strength of {threshold:g} or more")
