"""``reweigh tune``: choose layer and beta on tuning records, by a stated rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.options import CAPTIONED, ExperimentOptions, grouped

if TYPE_CHECKING:
    from reweigh.lab.arms.tune.report import Search
    from reweigh.lab.runs.task import Task

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def tune(
    *,
    layers: str = typer.Option(None, help="Layers, separated by commas; by default those of the table."),
    betas: str = typer.Option("0.5,0.7,0.9,1.1,1.3", help="Betas of the grid, separated by commas."),
    bound: float = typer.Option(0.5, min=0.0, help="Largest accepted loss of F1, in points."),
    benchmark: str = CAPTIONED,
    out: Path = typer.Option(Path("tuning"), "--out", "-o", help=common.RESUMES),
    setup: ExperimentOptions,
    table: str = common.TABLE,
    record: bool = typer.Option(
        True,
        "--record/--no-record",
        help="Save the point in the --table folder's table, where attach finds it.",
    ),
) -> None:
    """Choose layer and beta by CHAIR_S, CHAIR_I, recall and F1 together.

    Points are chosen on the benchmark's records for tuning: the tuning split of `world`, the training images of chair.
    """
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import overwrites
    from reweigh.lab.arms.tune.report import FILES, Search
    from reweigh.lab.arms.tune.run import Grid
    from reweigh.lab.arms.tune.run import tune as search_points
    from reweigh.lab.views.report import claim_report
    from reweigh.tables.store import record_point

    task = _task(setup, benchmark, out)
    where = common.table_of(setup.model, table)
    home = Path(table) if record and table and Path(table).is_dir() else None
    claim_report(out, FILES)
    grid = Grid.open(where, layers, betas, bound)
    loaded = setup.load(setup.model)
    runs = setup.runs(task, loaded)
    with only_one(out):
        tuned = search_points(*loaded, grid, runs, out, force=setup.force)
    chosen_on = grid.chosen_on(task, limit=setup.limit, seed=setup.seed)
    search = Search(tuned, setup.model, chosen_on, None if table is None else where)
    if home is not None and not overwrites() and (why := search.kept_point(home)) is not None:
        common.note(f"{home} keeps its operating point: {why}; --overwrite records this one")
        home = None
    report = search.report()
    written = report.write(out)
    if home is not None and tuned.chosen is not None:
        written.append(record_point(home, search.operating_point()))
    common.show(report.numbers, lambda: _show(search))
    then = "the same command on more records, or with other --betas"
    if search.doubt() is None:
        same = common.same(setup.model, benchmark=benchmark, table=table)
        then = f"reweigh compare {same} --methods base,reweigh"
    common.finish(*written, then=then)


def _show(search: Search) -> None:
    """Print the tables and what follows from them."""
    from reweigh.lab.arms.tune.report import EXPLAINED
    from reweigh.lab.views.page import Page

    common.console().print(search.contrast.add_to(Page("", lead=search.lead), EXPLAINED).terminal())
    typer.echo("\n".join(search.advice()))


def _task(setup: ExperimentOptions, benchmark: str | None, out: Path) -> Task:
    """Open the benchmark's records for tuning."""
    from reweigh.lab.arms.tune.search import FIGURES
    from reweigh.lab.tasks import find_benchmark

    name = setup.benchmark(benchmark)
    preset = find_benchmark(name).tuning_options
    task = setup.task(name, drawings=out / "pictures", preset=preset, needs=FIGURES, why="tuning")
    task.require_records()
    return task
