"""``python -m tools.bench``: time the parts that developers tune, as ratios formed in one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common, start

if TYPE_CHECKING:
    from tools.bench.report import Measurement
    from tools.bench.timing import Rounds

app = typer.Typer(add_completion=False)

RIVAL = typer.Option(
    [], "--rival", help="Also time this decoder in `embedded` and `large`; repeatable, `all` for every one."
)
ROUNDS = typer.Option(7, "--rounds", "-r", min=1, help="Rounds; six or more give 95% intervals.")
OUT = typer.Option(
    None, "--out", "-o", help="Folder for speed.json, speed.md, speed.html and rounds to resume from."
)
THREADS = typer.Option(1, min=1, help="Threads for both sides of every ratio.")


class Part(StrEnum):
    """What can be measured."""

    kernels = "kernels"
    step = "step"
    growth = "growth"
    calibration = "calibration"
    embedded = "embedded"
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
    new_tokens: int = typer.Option(None, min=1, help="Tokens to generate in `embedded` and `large`."),
    images: int = typer.Option(50, min=1, help="Pictures in `calibration`."),
    out: Path = OUT,
    json: bool = common.JSON,
) -> None:
    """Time variants in turn and print their ratios with medians and intervals."""
    length: dict[str, Any] = {} if new_tokens is None else {"new_tokens": new_tokens}
    chosen = parts or [Part.kernels, Part.step]

    if out is not None:
        from tools.bench.report import claim_files

        claim_files(out)

    def figures(plan: Rounds) -> Iterator[Measurement]:
        for part in chosen:
            yield from _figures(part, shape, rival, plan, length, images)

    measure(figures, rounds=rounds, threads=threads, out=out, json=json)


def _figures(
    part: Part, shapes: list[str], rivals: list[str], rounds: Rounds, length: dict[str, Any], images: int
) -> Iterator[Measurement]:
    from tools.bench import calibration, embedded, growth, kernels, random_llava, step
    from tools.bench.generation import find_rivals, generation_figures

    if part is Part.kernels:
        yield from kernels.kernel_figures(kernels.find_shapes(shapes), rounds)
    elif part is Part.step:
        yield from step.step_figures(kernels.find_shapes(shapes), rounds)
    elif part is Part.growth:
        yield from growth.growth_figures(rounds, embedded.embedded())
    elif part is Part.calibration:
        pictures = embedded.scene_pictures(images)
        yield from calibration.calibration_figures(*embedded.embedded_model(), pictures, rounds)
    elif part is Part.embedded:
        yield from generation_figures(embedded.embedded(**length), rounds, find_rivals(rivals), common.note)
    elif part is Part.large:
        names = find_rivals(rivals)
        yield from generation_figures(random_llava.random_llava(**length), rounds, names, common.note)
    elif part is Part.serve:
        from tools.bench.serve import serve_figures

        yield from serve_figures(rounds)


def measure(
    figures: Callable[[Rounds], Iterator[Measurement]],
    *,
    rounds: int,
    threads: int,
    out: Path | None,
    json: bool,
) -> list[Measurement]:
    """Describe the machine, then show and write figures as they are measured."""
    common.quiet()
    import torch

    from tools.bench.report import build_report, case_table, machine, setting
    from tools.bench.timing import Rounds

    torch.set_num_threads(threads)
    found = machine()
    if not json:
        common.console().print(f"{found['processor']}, threads: {threads}, load: {found['load_average']}")
    measured: list[Measurement] = []
    plan = Rounds(rounds, out, setting(found))
    stopped = False

    def end_case() -> None:
        title = measured[-1].title
        if not json:
            table = case_table([one for one in measured if one.title == title])
            common.console().print(f"\n[bold]{title}[/bold]", table, sep="\n")
        if out is not None:
            build_report(found, rounds, measured).write(out)

    try:
        for one in figures(plan):
            if measured and one.title != measured[-1].title:
                end_case()
            measured.append(one)
    except KeyboardInterrupt:
        stopped = True
    if measured:
        end_case()
    if json:
        common.emit_json(build_report(found, rounds, measured).numbers)
    else:
        _print_missed(measured)
    if stopped or plan.stopped:
        later = "repeat the command to resume" if out else "use --out to be able to resume"
        typer.echo(f"stopped; {later}", err=True)
        raise typer.Exit(start.exit_code())
    return measured


def _print_missed(figures: list[Measurement]) -> None:
    for figure in figures:
        if figure.ratio is not None and figure.within_goal is False:
            common.console().print(
                f"goal missed: {figure.case}, {figure.variant}: {figure.ratio.value:.4f} > {figure.goal:g}"
            )


if __name__ == "__main__":
    app()
