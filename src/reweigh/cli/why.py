"""``reweigh describe --why``: one decoding step's arithmetic, as a table and as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

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


def print_step(recorded: Trace, step: Step, top: int, words: Mapping[int, str]) -> None:
    """Print the candidates of a step, with evidence, reference and deficit in thousandths."""
    from reweigh.lab.views.mechanism import visible
    from reweigh.lab.views.table import Cell, Column, Table

    roles = {step.winner_before: "suppressed", step.winner_after: "emitted"}
    rows: list[list[Cell]] = []
    for row in step.candidates[:top]:
        piece = visible(row.text)
        word = words.get(row.token) or piece
        support = [value and 1000 * value for value in (row.evidence, row.reference, row.deficit)]
        rows.append(
            [
                word if word == piece else f"{word} (piece “{piece}”)",
                row.logit,
                *support,
                row.strength,
                row.shift,
                row.edited,
                roles.get(row.token, ""),
            ]
        )
    names = ("z", "DMRR e-3", "b e-3", "deficit e-3", "s", "beta s", "z'")
    columns = [Column("candidate"), *(Column(name, digits=3) for name in names), Column("")]
    typer.echo(
        f"step {step.index}: b0 = {recorded.scale:.6g}, beta = {recorded.beta:g}, layer {recorded.layer}"
    )
    common.console().print(Table(columns, rows))
    if len(step.candidates) > top:
        typer.echo(f"and {len(step.candidates) - top} more candidates; --json lists them")


def plot_step(step: Step, path: Path, top: int, words: Mapping[int, str]) -> None:
    from reweigh.files.outputs import write_output
    from reweigh.lab.views.mechanism import step_svg

    write_output(path, step_svg(step.plot_rows(words), limit=top))
    common.finish(path)
