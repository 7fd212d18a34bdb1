"""``reweigh study``: the paper's analyses on a model and images of one's own, all from one pass over the images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.groups import grouped

if TYPE_CHECKING:
    from reweigh.paper.studies.study import Outcome

app = typer.Typer(add_completion=False)

ALL = "all"


@dataclass(frozen=True, kw_only=True)
class StudyOptions(BenchmarkOptions):
    """Those of a benchmark; images are answered together as they were at calibration unless told otherwise."""

    batch_size: int = typer.Option(0, min=0, help="Images answered at once; 0 is as many as at calibration.")


@app.command()
@grouped
def study(
    name: str = typer.Argument(help="A study, several separated by commas, or `all`; `list` names them."),
    model: str = typer.Argument(
        common.WORLD, help="Hub id or checkpoint folder; the embedded model if not given."
    ),
    *,
    calibration: Path = typer.Option(
        None,
        help="Folder or manifest of the images that the table was calibrated on; drawn for `world` if not given.",
    ),
    benchmark: str = typer.Option("world", "--benchmark", "-b", help="world or chair."),
    out: Path = typer.Option(Path("study"), "--out", "-o", help="Folder; a stopped study goes on there."),
    resamples: int = typer.Option(2000, min=2, help="Draws of a bootstrap."),
    selection: StudyOptions,
    point: common.Point,
    weights: common.Weights,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Compute the paper's analyses: a tidy table, a figure and a few sentences each.

    The images are described once; every study reads what that pass kept. Stop it at any time: the same command goes on where
    it was and ends with the same bytes.
    """
    from reweigh.paper.studies import STUDIES

    if name == "list":
        for one in STUDIES:
            typer.echo(f"{one:<14} {STUDIES[one].title} ({STUDIES[one].reproduces})")
        return
    names = list(STUDIES) if name == ALL else [part.strip() for part in name.split(",") if part.strip()]
    for one in names:
        STUDIES[one]  # refuse an unknown name before anything is loaded
    from reweigh.files.artifacts import only_one
    from reweigh.paper.studies.prepare import Order, prepare
    from reweigh.paper.studies.report import write_report
    from reweigh.paper.studies.run import finished, run_studies

    order = Order(
        table=point.of(model),
        layer=point.layer,
        beta=point.beta,
        calibration=calibration,
        resamples=resamples,
        force=force,
    )
    task = selection.task(benchmark, drawings=out / "pictures" / "evaluation")
    with only_one(out):
        loaded = weights.load(model)
        runs = selection.runs(task, model, weights, loaded)
        material = prepare(loaded, runs, order, out, world=model == common.WORLD)
        outcomes = run_studies(names, material, out)
        report = write_report(out, finished(material, out), material.record())
    if as_json:
        common.emit_json({"material": material.record(), "studies": [one.to_json() for one in outcomes]})
    else:
        for outcome in outcomes:
            _show(outcome)
    common.note(f"written: {', '.join(str(out / one) for one in names)}, {report}")


def _show(outcome: Outcome) -> None:
    """Print a study's table and sentences."""
    from reweigh.results.table import Column, Table

    columns = [
        Column(column.name, digits=4 if column.kind == "number" else 0) for column in outcome.study.columns
    ]
    title = f"{outcome.study.title} ({outcome.study.reproduces})"
    if outcome.rows:
        body = [[row[column.name] for column in columns] for row in outcome.rows]
        common.console().print(Table(columns, body, title))
    else:
        typer.echo(title)
    for sentence in outcome.sentences:
        typer.echo(f"  {sentence}")
    typer.echo("")
