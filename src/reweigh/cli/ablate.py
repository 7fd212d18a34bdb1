"""``reweigh ablate``: one part of the method changed at a time, on the same records and evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.options import BENCHMARK, BenchmarkOptions, benchmark_of, grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def ablate(
    model: str = common.MODEL_OR_WORLD,
    *,
    arms: str = typer.Option(
        "global,shuffled,mismatched,cyclic,blind,no-abstention,bidirectional,unbounded,count-5,count-10",
        help="Arms, separated by commas; the base model and the full method are always included.",
    ),
    calibration: Path = typer.Option(
        None,
        help="Images that the table was calibrated on, for arms with other readouts; drawn for `world`.",
    ),
    benchmark: str = BENCHMARK,
    out: Path = typer.Option(Path("ablation"), "--out", "-o", help=common.RESUMES),
    selection: BenchmarkOptions,
    point: common.Point,
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Change one part of the method at a time and compare each arm with the full method."""
    from reweigh.experiments.ablate.arms import parse_arms
    from reweigh.experiments.ablate.report import FIGURES, FILES, AblationReport
    from reweigh.experiments.ablate.run import SHUFFLES, plan
    from reweigh.experiments.ablate.run import ablate as run
    from reweigh.files.artifacts import only_one
    from reweigh.paper.material import readouts_of
    from reweigh.runtime.memory import EvidenceCache

    kinds = parse_arms(arms)
    FILES.claim(out)
    task = selection.task(benchmark_of(model, benchmark), drawings=out / "pictures")
    task.require(FIGURES, "an ablation")
    task.require_records()
    where = point.of(model)
    loaded = loading.load(model)
    runs = selection.runs(task, model, loading, loaded)
    planned = plan(
        loaded,
        runs,
        kinds,
        where,
        layer=point.layer,
        beta=point.beta,
        shuffles=SHUFFLES,
        readouts=lambda table: readouts_of(
            loaded, table, calibration, out, runs, world=model == common.WORLD
        ),
        force=force,
    )
    for kind, why in planned.left_out.items():
        typer.echo(f"{kind} is left out: {why}", err=True)
    with only_one(out):
        kept = EvidenceCache(folder=out / "evidence")
        found = run(*loaded, planned, runs, out, cache=kept, force=force)
    about = {"model": model, "benchmark": task.metadata, "records": len(task.records), "seed": selection.seed}
    report = AblationReport(found, planned, about)
    written = report.write(out)
    common.show(report.to_json(), lambda: common.console().print(report.page().terminal()))
    common.finish(
        *written,
        then=f"reweigh study all {common.same(model, benchmark=benchmark, table=point.table)} --paper --results {out}",
    )
