"""``reweigh tune``: choose layer and beta on tuning records, or on pictures without labels, by a stated rule."""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import typer

from reweigh.cli import common
from reweigh.cli.options import BENCHMARK, ExperimentOptions, grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.experiments.tune.report import Search
    from reweigh.experiments.tune.verifier import ModelVerifier, ServedVerifier
    from reweigh.runs.task import Task

app = typer.Typer(add_completion=False)

VERIFIER_KEY = "REWEIGH_VERIFIER_KEY"
"""Environment variable with the key of a served verifier."""
TRIES = 3
"""Attempts to reach a served verifier before anything is loaded; few, so that a missing server is reported soon."""


@dataclass(frozen=True, kw_only=True)
class VerifierOptions:
    """Who verifies mentions if there are no labels; a group of options."""

    PANEL: ClassVar[str] = "Tuning without labels (experimental)"

    pictures: Path | None = typer.Option(
        None, help="Folder of unlabeled pictures; a verifier judges the mentions."
    )
    verifier: str | None = typer.Option(None, help="Model that judges mentions; by default the model itself.")
    verifier_url: str | None = typer.Option(
        None,
        help=f"Base URL of a server that runs it (/v1/systemone), with its key in {VERIFIER_KEY}.",
    )

    def served(self, out: Path) -> ServedVerifier | None:
        """Open the verifier behind a URL, if one is given; probe it first unless verdicts are stored already."""
        from reweigh.benchmarks.judge.kinds import SystemOne
        from reweigh.experiments.tune.verdicts import VERDICTS
        from reweigh.experiments.tune.verifier import ServedVerifier

        if self.verifier_url is None:
            return None
        if self.verifier is None:
            raise InputError("--verifier-url needs --verifier, the name of its model", hint="--verifier NAME")
        url = self.verifier_url
        key = VERIFIER_KEY if os.environ.get(VERIFIER_KEY) else None
        server = partial(SystemOne, self.verifier, base_url=url, key_variable=key, role="verifier")
        if not (out / VERDICTS).exists():
            with ServedVerifier(server(attempts=TRIES)) as tried:
                common.note(f"trying the verifier {self.verifier} at {tried.server.base_url}")
                tried.probe()
        return ServedVerifier(server())

    def load(self, loading: common.Loading) -> ModelVerifier | None:
        """Load the verifier, if it is not the model being tuned."""
        from reweigh.experiments.tune.verifier import ModelVerifier

        if self.verifier is None:
            return None
        return ModelVerifier(*loading.load(self.verifier), template=loading.template, name=self.verifier)


@app.command()
@grouped
def tune(
    *,
    layers: str = typer.Option(None, help="Layers, separated by commas; by default those of the table."),
    betas: str = typer.Option("0.5,0.7,0.9,1.1,1.3", help="Betas of the grid, separated by commas."),
    bound: float = typer.Option(0.5, min=0.0, help="Largest accepted loss of F1, in points."),
    benchmark: str = BENCHMARK,
    verifying: VerifierOptions,
    out: Path = typer.Option(Path("tuning"), "--out", "-o", help=common.RESUMES),
    setup: ExperimentOptions,
    table: str = common.TABLE,
    record: bool = typer.Option(
        True,
        "--record/--no-record",
        help="Save the point in the --table folder, where attach finds it.",
    ),
) -> None:
    """Choose layer and beta by CHAIR_S, CHAIR_I, recall and F1 together.

    Points are chosen on the benchmark's records for tuning: the tuning split of `world`, the training images of chair.
    """
    from reweigh.experiments.tune.labelfree import tune_free
    from reweigh.experiments.tune.report import FILES, Search
    from reweigh.experiments.tune.run import Grid
    from reweigh.experiments.tune.run import tune as tune_by_labels
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import claim, overwrites, write_sealed_output
    from reweigh.results.report import claim_report
    from reweigh.tables.point import POINT

    free = verifying.pictures is not None
    if not free and (verifying.verifier or verifying.verifier_url):
        raise InputError("--verifier is for tuning without labels", hint="add --pictures DIR")
    task = _task(setup, benchmark, verifying.pictures, out)
    where = common.table_of(setup.model, table)
    home = Path(table) if record and table and Path(table).is_dir() else None
    claim_report(out, FILES)
    if home is not None:
        claim([home / POINT])
    grid = Grid.open(where, layers, betas, bound)
    served = verifying.served(out)
    loaded = setup.load(setup.model)
    runs = setup.runs(task, loaded)
    with only_one(out), served or nullcontext():
        if free:
            tuned = tune_free(
                *loaded,
                grid,
                runs,
                out,
                lexicon="world" if setup.is_world else "chair",
                data=setup.data,
                verifier=served or verifying.load(setup),
                force=setup.force,
            )
        else:
            tuned = tune_by_labels(*loaded, grid, runs, out, force=setup.force)
    chosen_on = grid.chosen_on(task, limit=setup.limit, seed=setup.seed)
    search = Search(tuned, setup.model, chosen_on, None if table is None else where)
    if home is not None and not overwrites() and (why := search.kept_point(home)) is not None:
        common.note(f"{home} keeps its operating point: {why}; --overwrite records this one")
        home = None
    report = search.report()
    written = report.write(out)
    if home is not None:
        written.append(write_sealed_output(home / POINT, report.numbers))
    common.show(report.numbers, lambda: _show(search))
    then = "the same command on more records, or with other --betas"
    if search.doubt() is None:
        same = common.same(setup.model, benchmark=benchmark, table=table)
        then = f"reweigh compare {same} --methods base,reweigh"
    common.finish(*written, then=then)


def _show(search: Search) -> None:
    """Print the tables and what follows from them."""
    from reweigh.experiments.tune.report import EXPLAINED
    from reweigh.results.page import Page

    common.console().print(search.contrast.add_to(Page("", lead=search.lead), EXPLAINED).terminal())
    typer.echo("\n".join(search.advice()))


def _task(setup: ExperimentOptions, benchmark: str | None, pictures: Path | None, out: Path) -> Task:
    """Open the records of the search: a folder of pictures if one is given, else a benchmark's for tuning."""
    from reweigh.benchmarks import find_benchmark
    from reweigh.experiments.tune.search import FIGURES

    if pictures is not None:
        from reweigh.experiments.tune.labelfree import open_pictures

        task = open_pictures(pictures, limit=setup.limit).with_length(setup.max_new_tokens)
        common.look_into(setup.model, pictures)
    else:
        name = setup.benchmark(benchmark)
        preset = find_benchmark(name).tuning_options
        task = setup.task(name, drawings=out / "pictures", preset=preset)
        task.require(FIGURES, "tuning")
    task.require_records()
    return task
