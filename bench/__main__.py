"""``python -m bench``: time the parts that developers tune, as ratios formed in one run."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.speed import OUT, RIVAL, ROUNDS, measure

if TYPE_CHECKING:
    from reweigh.speed.report import Measurement
    from reweigh.speed.timing import Rounds

app = typer.Typer(add_completion=False)

THREADS = typer.Option(1, min=1, help="Threads for both sides of every ratio.")


class Part(StrEnum):
    """What can be measured."""

    kernels = "kernels"
    step = "step"
    growth = "growth"
    calibration = "calibration"
    large = "large"
    serve = "serve"


@app.command()
def bench(
    parts: list[Part] = typer.Argument(
        None,
        help="What to measure; kernels and step if nothing is named. `large` is a random model of 0.95 B parameters.",
    ),
    shape: list[str] = typer.Option([], "--shape", "-s", help="Only these model shapes (all by default)."),
    rival: list[str] = RIVAL,
    rounds: int = ROUNDS,
    threads: int = THREADS,
    new_tokens: int = typer.Option(None, min=1, help="Tokens to generate in `large`."),
    images: int = typer.Option(50, min=1, help="Pictures in `calibration`."),
    out: Path = OUT,
    json: bool = common.JSON,
) -> None:
    """Time variants in turn and print their ratios with medians and intervals."""
    length: dict[str, Any] = {} if new_tokens is None else {"new_tokens": new_tokens}
    chosen = parts or [Part.kernels, Part.step]

    def figures(plan: Rounds) -> Iterator[Measurement]:
        for part in chosen:
            yield from _figures(part, shape, rival, plan, length, images)

    measure(figures, rounds=rounds, threads=threads, out=out, json=json)


def _figures(
    part: Part, shapes: list[str], rivals: list[str], rounds: Rounds, length: dict[str, Any], images: int
) -> Iterator[Measurement]:
    from bench import calibration, embedded, growth, kernels, random_llava, step
    from reweigh.speed.generation import find_rivals, generation_figures

    if part is Part.kernels:
        yield from kernels.kernel_figures(kernels.find_shapes(shapes), rounds)
    elif part is Part.step:
        yield from step.step_figures(kernels.find_shapes(shapes), rounds)
    elif part is Part.growth:
        yield from growth.growth_figures(rounds, embedded.embedded())
    elif part is Part.calibration:
        pictures = embedded.scene_pictures(images)
        yield from calibration.calibration_figures(*embedded.embedded_model(), pictures, rounds)
    elif part is Part.large:
        names = find_rivals(rivals)
        yield from generation_figures(random_llava.random_llava(**length), rounds, names, common.note)
    elif part is Part.serve:
        from bench.serve import serve_figures

        yield from serve_figures(rounds)


if __name__ == "__main__":
    app()
