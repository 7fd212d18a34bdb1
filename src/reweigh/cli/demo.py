"""``reweigh demo``: the whole method on the embedded model, without downloads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common

if TYPE_CHECKING:
    from reweigh.lab.arms.demo import Case, Demonstration

app = typer.Typer(add_completion=False)


@app.command()
def demo(
    scenes: int | None = typer.Option(
        None, min=10, help="Evaluation scenes to describe; by default 500, or 100 with --quick."
    ),
    quick: bool = typer.Option(
        False, "--quick", help="Use the shipped reference table instead of calibrating."
    ),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="HTML file for the page."),
) -> None:
    """Show the method on the embedded model: calibrate, describe scenes with and without it, score and explain.

    Nothing is downloaded.
    """
    common.require_ending("--out", out, ".html")
    common.quiet()
    from reweigh.files.outputs import claim
    from reweigh.lab.arms.demo import build_page, run, trace_case

    claim([out])
    count = scenes or (100 if quick else 500)
    outcome = run(count=count, quick=quick)
    cases = [trace_case(outcome, number) for number in outcome.improved(3)]
    harmed = [trace_case(outcome, number) for number in outcome.harmed(1)]
    build_page(outcome, cases, harmed).write(out)
    common.show(outcome.to_json(), lambda: _print(outcome, cases))
    common.note(f"{outcome.took()}, nothing was downloaded")
    common.finish(out, then="reweigh doctor MODEL, to see whether your own model is supported")


def _print(outcome: Demonstration, cases: list[Case]) -> None:
    from reweigh.lab.arms.demo import figures_table
    from reweigh.lab.views.examples import answer, colored_text, mention_spans
    from reweigh.marks import MARKS

    console = common.console()
    session = outcome.session
    console.print(
        f"{len(outcome.scenes)} evaluation scenes, layer {session.layer}, beta {session.beta:g}, "
        f"{len(session.table):,} registered tokens, b0 = {session.table.b0:.4g}"
    )
    console.print(figures_table(outcome))
    console.print(f"hallucinated mentions (CHAIR_I) changed by {outcome.relative_change()}")
    for case in cases:
        console.print(f"\n[dim]{case.scene.id}: {', '.join(sorted(case.scene.objects))}[/dim]")
        for arm, run in outcome.scored.items():
            item, text = answer(run, case.scene.id)
            console.print(f"{arm:8}", colored_text(text, mention_spans(item, text)))
    legend = (
        f"[{mark.terminal}]{mark.title}[/] {mark.meaning}"
        for mark in (MARKS["grounded"], MARKS["hallucinated"])
    )
    console.print(f"\n{', '.join(legend)}")
