"""``reweigh trace``: the arithmetic of the intervention, step by step, as a table, a plot or JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.method.trace import Step, Trace

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def trace(
    model: str = common.MODEL,
    image: Path = typer.Argument(help="The picture."),
    *,
    point: common.Point,
    question: common.Question,
    step: int = typer.Option(
        None, help="0-based decoding step to show; the first one whose winner changed if not given."
    ),
    top: int = typer.Option(8, min=1, help="Candidates to show."),
    plot: Path = typer.Option(None, help="Write the step as an SVG: logits before and after, with arrows."),
    weights: common.Weights,
    force: bool = common.FORCE,
    json: bool = common.JSON,
) -> None:
    """Show why a word was suppressed: each candidate's logit, evidence, reference, deficit and edit."""
    if plot is not None and plot.suffix.lower() != ".svg":
        raise InputError(
            f"{plot} is no name of an SVG, which a plot is", hint=f"--plot {plot.with_suffix('.svg')}"
        )
    common.require_pictures(model, [image])
    session = point.attach(model, weights, force=force)
    with session.request(trace=True) as request:
        text = session.describe(image, **asdict(question))
    recorded = request.trace
    changed = [found.index for found in recorded.steps() if found.changed]
    shown_step = recorded.step(_which(step, changed, len(recorded)))
    words = {} if json and plot is None else _words(session, recorded, shown_step, image, question, top)
    if plot is not None:
        _plot(shown_step, plot, top, words)
    if json:
        common.emit_json({"text": text, "changed_steps": changed, **recorded.to_json()})
        return
    typer.echo(text)
    typer.echo(
        f"\n{len(recorded)} steps; the edit changed the winner at {', '.join(map(str, changed)) or 'none'}"
    )
    _table(recorded, shown_step, top, words)


def _which(step: int | None, changed: list[int], count: int) -> int:
    if step is None:
        return changed[0] if changed else 0
    if not 0 <= step < count:
        raise InputError(f"step {step} does not exist: {count} steps were decoded, from 0 to {count - 1}")
    return step


def _words(
    session: Any, recorded: Trace, step: Step, image: Path, question: common.Question, top: int
) -> dict[int, str]:
    """The candidates that are shown as whole words: the written one as the text has it, the others as they would go on."""
    from reweigh.engines.transformers.words import whole_words
    from reweigh.images import read_image

    said = [recorded.step(index).winner_after for index in range(step.index)]
    tokens = [row.token for row in step.candidates[:top]]
    inputs = session.prepare([read_image(image)], [question.prompt], template=question.template)
    found = whole_words(session.model, session.processor, inputs, said, tokens)
    return {**found, step.winner_after: recorded.word(step.index)}


def _table(recorded: Trace, shown_step: Step, top: int, words: Mapping[int, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from reweigh.results.plots import visible

    sheet = Table(
        title=f"step {shown_step.index}: b0 = {recorded.scale:.6g}, beta = {recorded.beta:g}, layer {recorded.layer}"
    )
    sheet.add_column("candidate")
    for name in ("z", "DMRR e-3", "b e-3", "deficit e-3", "s", "beta s", "z'"):
        sheet.add_column(name, justify="right")
    sheet.add_column("")
    for row in shown_step.candidates[:top]:
        roles = {shown_step.winner_before: "was ahead", shown_step.winner_after: "written"}
        role = roles.get(row.token, "")
        piece = visible(row.text)
        candidate = Text(words.get(row.token) or piece)
        if candidate.plain != piece:
            candidate.append(f" (piece “{piece}”)", style="dim not bold")
        evidence = [_thousandths(row.evidence), _thousandths(row.reference), _thousandths(row.deficit)]
        strength = "-" if row.strength is None else f"{row.strength:.3f}"
        cells = [
            f"{row.logit:.3f}",
            *evidence,
            strength,
            f"{row.shift:.3f}",
            f"{row.edited:.3f}",
            role,
        ]
        sheet.add_row(candidate, *cells, style="bold yellow" if role and shown_step.changed else "")
    common.console().print(sheet)
    if len(shown_step.candidates) > top:
        typer.echo(f"and {len(shown_step.candidates) - top} more candidates; --top shows them")


def _thousandths(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:.3f}"


def _plot(shown_step: Step, path: Path, top: int, words: Mapping[int, str]) -> None:
    from reweigh.files.artifacts import write_text
    from reweigh.results.plots import mechanism_plot

    write_text(path, mechanism_plot(shown_step.plot_rows(words), title=f"step {shown_step.index}", limit=top))
    common.note(f"wrote {path}")
