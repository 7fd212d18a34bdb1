"""``reweigh bench``: what exact evidence and the edit cost on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common

if TYPE_CHECKING:
    from reweigh.speed.figures import Figure

app = typer.Typer(add_completion=False)


class Part(str, Enum):
    """What can be measured."""

    kernels = "kernels"
    step = "step"
    growth = "growth"
    generation = "generation"
    calibration = "calibration"
    large = "large"


@app.command()
def bench(
    parts: list[Part] = typer.Argument(
        None,
        help="What to measure; kernels and step if nothing is named. `large` is a random model of 0.5 B.",
    ),
    shape: list[str] = typer.Option([], "--shape", "-s", help="Only these model shapes; all if not given."),
    rival: list[str] = typer.Option(
        [], "--rival", help="Only these rivals in generation; all if not given, none with `none`."
    ),
    rounds: int = typer.Option(7, "--rounds", "-r", min=1, help="Rounds; six or more give 95% intervals."),
    threads: int = typer.Option(1, min=1, help="Threads for both sides of every ratio."),
    new_tokens: int = typer.Option(None, min=1, help="Tokens written in generation."),
    out: Path = typer.Option(
        None, "--out", "-o", help="Folder for speed.json, speed.md and the plots (SVG)."
    ),
    json: bool = common.JSON,
) -> None:
    """Time variants in turns and print ratios formed within each round, with medians and intervals.

    Ratios are meant; absolute times belong to the machine, which is described at the top.
    """
    common.quiet()
    import torch

    from reweigh.progress import bar
    from reweigh.speed.machine import machine

    torch.set_num_threads(threads)
    figures: list[Figure] = []
    chosen = parts or [Part.kernels, Part.step]
    with bar("measuring", unit="figure") as progress:
        for figure in _measure(chosen, shape, rival, rounds, new_tokens):
            figures.append(figure)
            progress.update()
    report = {"machine": machine(), "rounds": rounds, "figures": [figure.to_json() for figure in figures]}
    if out is not None:
        _write(out, report, figures)
    if json:
        common.emit_json(report)
    else:
        _print(report, figures)


def _measure(
    parts: list[Part], shapes: list[str], rivals: list[str], rounds: int, new_tokens: int | None
) -> Iterator[Figure]:
    from reweigh.speed.calibration import IMAGES, calibration_figures
    from reweigh.speed.generation import generation_figures
    from reweigh.speed.generation import rivals as all_rivals
    from reweigh.speed.growth import growth_figures
    from reweigh.speed.kernels import find_shapes, kernel_figures
    from reweigh.speed.step import step_figures
    from reweigh.speed.subjects import embedded, is_shipped, random_llava, scene_pictures

    names = [] if rivals == ["none"] else rivals or all_rivals()
    length: dict[str, Any] = {} if new_tokens is None else {"new_tokens": new_tokens}
    if Part.kernels in parts:
        yield from kernel_figures(find_shapes(shapes), rounds)
    if Part.step in parts:
        yield from step_figures(find_shapes(shapes), rounds)
    if Part.growth in parts:
        yield from growth_figures(rounds, embedded() if is_shipped() else None)
    if Part.generation in parts:
        yield from generation_figures(embedded(**length), rounds, names)
    if Part.calibration in parts:
        subject, pictures = embedded(), scene_pictures(IMAGES)
        yield from calibration_figures(subject.model, subject.processor, pictures, rounds)
    if Part.large in parts:
        yield from generation_figures(random_llava(**length), rounds, names)


def _write(out: Path, report: dict[str, Any], figures: list[Figure]) -> None:
    from reweigh.artifacts import write_json, write_text
    from reweigh.errors import MissingExtraError
    from reweigh.speed.chart import draw
    from reweigh.speed.figures import tables

    write_json(out / "speed.json", report)
    lines = [f"- {name}: {value}" for name, value in report["machine"].items()]
    pages = [table.markdown() for table in tables(figures)]
    write_text(out / "speed.md", "\n".join(lines) + "\n\n" + "\n".join(pages))
    try:
        for part in dict.fromkeys(figure.part for figure in figures):
            draw(figures, part, out / f"{part}.svg")
    except MissingExtraError as error:  # the figures are worth more than their picture
        typer.echo(f"no plot: {error}", err=True)


def _print(report: dict[str, Any], figures: list[Figure]) -> None:
    from reweigh.speed.figures import tables

    console = common.console()
    for name, value in report["machine"].items():
        text = ", ".join(f"{key} {one}" for key, one in value.items()) if isinstance(value, dict) else value
        console.print(f"{name}: {text}", soft_wrap=True)
    for table in tables(figures):
        console.print(table.terminal())
    for figure in figures:
        if figure.ratio is not None and figure.within_goal is False:
            console.print(
                f"goal missed: {figure.case}, {figure.variant}: {figure.ratio.value:.4f} > {figure.goal:g}"
            )
