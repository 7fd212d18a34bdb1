"""``reweigh speed``: what evidence, the edit and the rivals cost on a model and machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common, start
from reweigh.cli.options import grouped

if TYPE_CHECKING:
    from reweigh.speed.report import Measurement
    from reweigh.speed.timing import Rounds

app = typer.Typer(add_completion=False)

RIVAL = typer.Option([], "--rival", help="Also time this decoder; repeatable, `all` for every one.")
ROUNDS = typer.Option(7, "--rounds", "-r", min=1, help="Rounds; six or more give 95% intervals.")
OUT = typer.Option(
    None, "--out", "-o", help="Folder for speed.json, speed.md, speed.html and rounds to resume from."
)


@app.command()
@grouped
def speed(
    model: str = common.MODEL_OR_WORLD,
    image: Path = typer.Option(None, "--image", help="The picture to describe; a drawn scene by default."),
    rival: list[str] = RIVAL,
    rounds: int = ROUNDS,
    max_new_tokens: int = typer.Option(60, min=1, help="Tokens to generate."),
    out: Path = OUT,
    *,
    table: str = common.TABLE,
    loading: common.Loading,
) -> None:
    """Measure what evidence, the edit and the rivals cost on a model, beside greedy decoding.

    Variants take turns, and each ratio is formed within a round; absolute times belong to this machine. Tables appear
    as soon as they are measured. With --out, a stopped run resumes when the same command is given again.
    """
    from reweigh.speed.generation import find_rivals, in_a_sentence
    from reweigh.speed.report import claim_files

    names = find_rivals(rival)

    def figures(plan: Rounds) -> Iterator[Measurement]:
        from reweigh.attached import attach
        from reweigh.images import read_image
        from reweigh.speed.generation import describing, generation_figures
        from reweigh.world.scenes import scene

        where = common.table_of(model, table)  # refused before the model is loaded
        session = attach(*loading.load(model), table=where)
        common.note(str(session.point))
        picture = scene("evaluation", index=0).image() if image is None else read_image(image)
        name = "embedded" if model == common.WORLD else Path(model).name
        yield from generation_figures(
            describing(name, session, picture, max_new_tokens), plan, names, common.note
        )

    if out is not None:
        claim_files(out)
    measured = measure(figures, rounds=rounds, threads=1, out=out, json=common.wants_json())
    if not common.wants_json():
        typer.echo(in_a_sentence(measured))
    common.finish(*([out] if out else []), then=f"reweigh compare {model}, for quality beside cost")


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

    from reweigh.speed.report import build_report, case_table, machine, setting
    from reweigh.speed.timing import Rounds

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
