"""``reweigh speed``: what exact evidence and the edit cost on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common

if TYPE_CHECKING:
    from reweigh.results.tables import Table
    from reweigh.speed.figures import Figure
    from reweigh.speed.timing import Rounds

app = typer.Typer(add_completion=False)


class Part(StrEnum):
    """What can be measured."""

    kernels = "kernels"
    step = "step"
    growth = "growth"
    generation = "generation"
    calibration = "calibration"
    large = "large"
    serve = "serve"
    vllm = "vllm"


@app.command()
def speed(
    parts: list[Part] = typer.Argument(
        None,
        help="What to measure; kernels and step if nothing is named. `large` is a random model of 0.95 B; `vllm` runs "
        "inside vLLM.",
    ),
    shape: list[str] = typer.Option([], "--shape", "-s", help="Only these model shapes; all if not given."),
    rival: list[str] = typer.Option(
        [], "--rival", help="Only these rivals in generation; all if not given, none with `none`."
    ),
    rounds: int = typer.Option(7, "--rounds", "-r", min=1, help="Rounds; six or more give 95% intervals."),
    threads: int = typer.Option(1, min=1, help="Threads for both sides of every ratio."),
    new_tokens: int = typer.Option(None, min=1, help="Tokens written in generation."),
    images: int = typer.Option(50, min=1, help="Pictures in calibration."),
    out: Path = typer.Option(
        None,
        "--out",
        "-o",
        help="Folder for speed.json, speed.md, the plots (SVG), and the runs to go on from.",
    ),
    json: bool = common.JSON,
) -> None:
    """Time variants in turns and print ratios formed within each round, with medians and intervals.

    Ratios are meant; absolute times belong to the machine, which is described at the top. Tables appear as they are
    measured. Stop when you like: whole rounds are reported, and with --out the same command goes on where it stopped.
    """
    common.quiet()
    import torch

    from reweigh.speed.machine import machine, setting
    from reweigh.speed.page import Page
    from reweigh.speed.timing import Rounds

    torch.set_num_threads(threads)
    found = machine()
    if not json:
        _print_machine(found)
    page = Page(found, rounds, out, show=(lambda _table: None) if json else _print_table)
    plan = Rounds(rounds, out, setting(found))
    stopped = False
    try:
        for figure in _measure(parts or [Part.kernels, Part.step], shape, rival, plan, new_tokens, images):
            page.add(figure)
    except KeyboardInterrupt:
        stopped = True
    page.end()
    if json:
        common.emit_json(page.report)
    else:
        _print_missed(page.figures)
    if page.undrawn:
        common.note(f"no plot: {page.undrawn}")
    if stopped or plan.stopped:
        later = (
            "the same command goes on from here" if out else "with --out the next run would go on from here"
        )
        typer.echo(f"stopped; {later}", err=True)
        raise typer.Exit(130)


def _measure(
    parts: list[Part],
    shapes: list[str],
    rivals: list[str],
    rounds: Rounds,
    new_tokens: int | None,
    images: int,
) -> Iterator[Figure]:
    from reweigh.speed.calibration import calibration_figures
    from reweigh.speed.generation import find_rivals, generation_figures
    from reweigh.speed.growth import growth_figures
    from reweigh.speed.kernels import find_shapes, kernel_figures
    from reweigh.speed.step import step_figures
    from reweigh.speed.subjects import embedded, embedded_model, is_shipped, random_llava, scene_pictures

    names, chosen = find_rivals(rivals), find_shapes(shapes)
    length: dict[str, Any] = {} if new_tokens is None else {"new_tokens": new_tokens}
    if Part.kernels in parts:
        yield from kernel_figures(chosen, rounds)
    if Part.step in parts:
        yield from step_figures(chosen, rounds)
    if Part.growth in parts:
        yield from growth_figures(rounds, embedded() if is_shipped() else None)
    if Part.generation in parts:
        yield from generation_figures(embedded(**length), rounds, names, _note)
    if Part.calibration in parts:
        yield from calibration_figures(*embedded_model(), scene_pictures(images), rounds)
    if Part.large in parts:
        yield from generation_figures(random_llava(**length), rounds, names, _note)
    if Part.serve in parts:
        from reweigh.speed.serve import serve_figures

        yield from serve_figures(rounds)
    if Part.vllm in parts:
        from reweigh.speed.vllm import vllm_figures

        yield from vllm_figures(rounds, **length)


def _note(text: str) -> None:
    typer.echo(text, err=True)


def _print_machine(machine: dict[str, Any]) -> None:
    from reweigh.text import in_words

    for name, value in machine.items():
        common.console().print(f"{name.replace('_', ' ')}: {in_words(value)}", soft_wrap=True)


def _print_table(table: Table) -> None:
    common.console().print(table.terminal())


def _print_missed(figures: list[Figure]) -> None:
    for figure in figures:
        if figure.ratio is not None and figure.within_goal is False:
            common.console().print(
                f"goal missed: {figure.case}, {figure.variant}: {figure.ratio.value:.4f} > {figure.goal:g}"
            )
