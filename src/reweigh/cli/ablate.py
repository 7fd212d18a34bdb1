"""``reweigh ablate``: one part of the method changed at a time, on the same records and evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.options import CAPTIONED, ExperimentOptions, grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def ablate(
    *,
    arms: str = typer.Option(
        "global,shuffled,mismatched,cyclic,blind,no-abstention,bidirectional,unbounded,count-5,count-10",
        help="Arms, separated by commas; the base model and the full method are always included.",
    ),
    calibration: Path = typer.Option(
        None,
        help="Images that the table was calibrated on, for arms with other readouts; drawn for `world`.",
    ),
    benchmark: str = CAPTIONED,
    out: Path = typer.Option(Path("ablation"), "--out", "-o", help=common.RESUMES),
    setup: ExperimentOptions,
    point: common.Point,
) -> None:
    """Change one part of the method at a time and compare each arm with the full method."""
    from reweigh.files.artifacts import only_one
    from reweigh.lab.arms.ablate.arms import parse_arms
    from reweigh.lab.arms.ablate.report import FIGURES, FILES, Ablation
    from reweigh.lab.arms.ablate.run import ablate as run
    from reweigh.lab.arms.ablate.run import plan
    from reweigh.lab.paper.prepare import readouts_of
    from reweigh.lab.views.report import claim_report

    kinds = parse_arms(arms)
    claim_report(out, FILES)
    task = setup.task(benchmark, drawings=out / "pictures", needs=FIGURES, why="an ablation")
    task.require_records()
    where = point.of(setup.model)
    loaded = setup.load(setup.model)
    runs = setup.runs(task, loaded)
    planned = plan(
        loaded,
        runs,
        kinds,
        where,
        layer=point.layer,
        beta=point.beta,
        readouts=lambda table: readouts_of(loaded, table, calibration, out, runs, world=setup.is_world),
        force=setup.force,
    )
    for kind, why in planned.left_out.items():
        typer.echo(f"{kind} is left out: {why}", err=True)
    with only_one(out):
        found = run(*loaded, planned, runs, out, force=setup.force)
    about = {
        "model": setup.model,
        "benchmark": task.metadata,
        "records": len(task.records),
        "seed": setup.seed,
    }
    report = Ablation(found, planned, about).report()
    written = report.write(out)
    common.show_report(report)
    same = common.same(setup.model, benchmark=benchmark, table=point.table)
    common.finish(
        *written,
        then=f"reweigh study all {same} --paper --results {common.quoted(out)}",
    )
