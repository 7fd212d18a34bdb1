"""``reweigh check --signal confidence``: words that no image position is sure of, and where the others are seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common

if TYPE_CHECKING:
    from reweigh.rivals.tools.confidence import Confided, ConfidentWord


def show_confidence(
    loaded: tuple[Any, Any],
    image: Path,
    text: str | None,
    *,
    words: list[str],
    out: Path | None,
    threshold: float,
    prompt: str,
    template: str | None,
    json: bool,
) -> None:
    """Read the confidence of a text's words (of the words given, if no text is), mark the weak ones and draw maps."""
    from reweigh.rivals.tools.confidence import check_confidence
    from reweigh.rivals.tools.entities import may_be_entity

    if text is None and words:
        text = " ".join(["", *words])  # as they stand inside a sentence
    found = check_confidence(*loaded, image, text, prompt=prompt, template=template)
    asked = {one.lower() for one in " ".join(words).split()}
    looked_at = [
        word for word in found.words if (word.text.lower() in asked if asked else may_be_entity(word.text))
    ]
    drawn = {} if out is None else _draw(found, looked_at, image, out)
    if json:
        common.emit_json({**found.to_json(), "maps": drawn})
        return
    _print(found, looked_at, threshold)
    for word, path in drawn.items():
        typer.echo(f"  {word} -> {path}")


def _print(found: Confided, words: list[ConfidentWord], threshold: float) -> None:
    from reweigh.results.coloured import Span, terminal

    kinds = {True: "hallucinated", False: "grounded"}
    spans = [Span(word.start, word.end, kinds[word.confidence < threshold]) for word in words]  # type: ignore[arg-type]
    common.console().print(terminal(found.text, spans))
    weak = {word.text: word.confidence for word in words if word.confidence < threshold}
    for text, confidence in weak.items():
        typer.echo(f"  {text}: internal confidence {confidence:.3f}")
    if not weak:
        typer.echo(f"  no word that was looked at has an internal confidence below {threshold:g}")


def _draw(found: Confided, words: list[ConfidentWord], image: Path, out: Path) -> dict[str, str]:
    """A heat map of each word, by word."""
    from reweigh.files.artifacts import write_bytes
    from reweigh.images import read_image
    from reweigh.results.heat import heatmap

    picture, drawn = read_image(image), {}
    for word in words:
        path = out / f"{word.text.lower()}.png"
        places = found.confidence.localise(picture.size, word.tokens)
        write_bytes(path, heatmap(picture, places.numpy(), low=0.0, high=1.0, scale=True))
        drawn[word.text.lower()] = str(path)
    return drawn
