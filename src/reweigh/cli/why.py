"""``reweigh describe --why``: one decoding step's arithmetic, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.method.trace import Step, Trace


def choose_step(step: int | None, changed: list[int], count: int) -> int:
    """Return the step to show: the requested one, otherwise the first whose winner changed."""
    if step is None:
        return changed[0] if changed else 0
    if not 0 <= step < count:
        raise InputError(f"step {step} does not exist: {count} steps were decoded, from 0 to {count - 1}")
    return step


def whole_candidates(
    session: Any, recorded: Trace, step: Step, image: Path, options: Mapping[str, Any], top: int
) -> dict[int, str]:
    """Spell out the candidates shown: the written one as the text has it, the others as the model would continue them."""
    from reweigh.engines.transformers.observe import whole_words
    from reweigh.images import read_image

    said = [recorded.step(index).winner_after for index in range(step.index)]
    tokens = [row.token for row in step.candidates[:top]]
    inputs = session.prepare([read_image(image)], [options["prompt"]], template=options["template"])
    found = whole_words(session.model, session.processor, inputs, said, tokens)
    return {**found, step.winner_after: recorded.word(step.index)}


def print_step(recorded: Trace, shown_step: Step, top: int, words: Mapping[int, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    from reweigh.results.mechanism import visible

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
        typer.echo(f"and {len(shown_step.candidates) - top} more candidates; --json lists them")


def _thousandths(value: float | None) -> str:
    return "-" if value is None else f"{value * 1000:.3f}"


def plot_step(shown_step: Step, path: Path, top: int, words: Mapping[int, str]) -> None:
    from reweigh.files.outputs import write_output
    from reweigh.results.mechanism import step_svg

    write_output(path, step_svg(shown_step.plot_rows(words), limit=top))
    common.finish(path)
