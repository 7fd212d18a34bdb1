"""A picture of a training run: loss and accuracy over the steps of each stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import read_jsonl, replacing
from tools.training.learning import LOG

COLUMNS = 4


def plot_losses(folder: Path, target: Path) -> None:
    """Draw the log of a training folder as a PNG."""
    from matplotlib.figure import Figure

    rows = read_jsonl(folder / LOG)
    if not rows:
        raise InputError(f"{folder / LOG} has no lines yet", hint="train for a few steps first")
    stages = list(dict.fromkeys(row["stage"] for row in rows))
    columns = min(len(stages), COLUMNS)
    lines = -(-len(stages) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.8 * lines), layout="constrained")
    for number, stage in enumerate(stages, start=1):
        _panel(figure.add_subplot(lines, columns, number), stage, [r for r in rows if r["stage"] == stage])
    with replacing(target) as temporary:
        figure.savefig(temporary, format="png", dpi=80)


def _panel(axes: Any, stage: str, rows: list[dict[str, Any]]) -> None:
    steps = [row["step"] for row in rows]
    for key in ("loss", "speech", "lens"):
        if key in rows[0]:
            axes.plot(steps, [row[key] for row in rows], label=key, linewidth=1)
    axes.set(title=stage, xlabel="step", ylabel="nats", ylim=(0, 5))
    share = axes.twinx()
    for key, style in (("patch_accuracy", ":"), ("answers", "--")):
        if key in rows[0]:
            share.plot(steps, [row[key] for row in rows], style, color="gray", label=key, linewidth=0.8)
    share.set_ylim(0, 1)
    lines = axes.get_lines() + share.get_lines()
    axes.legend(lines, [line.get_label() for line in lines], fontsize=7, frameon=False)
