"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.options import RAY, REGIME, ExperimentOptions, grouped, open_cluster, require_apart
from reweigh.errors import InputError, require_known

if TYPE_CHECKING:
    from reweigh.lab.arms.compare.methods import Method
    from reweigh.lab.arms.compare.report import Comparison
    from reweigh.lab.arms.tune_all import Tuning
    from reweigh.lab.runs.task import Task

app = typer.Typer(add_completion=False)

STEERING = "steering"
"""Folder of the directions that are made for a comparison."""


@app.command()
@grouped
def compare(
    *,
    methods: str | None = typer.Option(
        None,
        "--methods",
        "-m",
        help="Decoders, separated by commas (vcd@half is a variant of vcd with its own options); by default baselines, "
        "controls, the paper's rivals and reweigh.",
    ),
    benchmark: list[str] = typer.Option(
        [],
        "--benchmark",
        "-b",
        help="chair, amber-generative, pope, objects ...; repeatable, and not needed for `world`.",
    ),
    out: Path = typer.Option(Path("comparison"), "--out", "-o", help=common.RESUMES),
    setup: ExperimentOptions,
    method_option: list[str] = typer.Option(
        [], metavar="METHOD.NAME=VALUE", help="Option of a method or variant; repeatable."
    ),
    regime: str = REGIME,
    against: str = typer.Option(None, help="Method to compare the others with."),
    tune_all: bool = typer.Option(
        False,
        "--tune-all",
        help="Also tune every decoder alike on tuning records, and add a tuned row for each.",
    ),
    tuning_limit: int = typer.Option(
        None, min=1, help="Use only the first N tuning records, for --tune-all and for asd, vti and the like."
    ),
    table: str = common.TABLE,
    ray: str | None = RAY,
) -> None:
    """Compare decoders on the same records, in one table of metrics and cost.

    What asd, vti, nullu and projectaway need from labeled images is made from tuning records unless it is given.
    """
    from reweigh.files.artifacts import only_one
    from reweigh.files.outputs import write_output
    from reweigh.lab.arms import steer
    from reweigh.lab.arms.compare.methods import (
        make_method,
        parse_methods,
        parse_options,
        standard_methods,
    )
    from reweigh.lab.arms.compare.report import FILES, PICTURES
    from reweigh.lab.arms.compare.run import compare as run
    from reweigh.lab.arms.tune_all import add_tuning, note, write_frontier
    from reweigh.lab.tasks.base import find_benchmark
    from reweigh.lab.tasks.open import data_folder
    from reweigh.lab.views.report import claim_report
    from reweigh.rivals import DECODERS

    benchmarks = benchmark or [setup.benchmark(None)]
    options: dict[str, dict[str, Any]]
    if methods is None:
        options = standard_methods(benchmarks)
    else:
        options = {name: {} for name in parse_methods(methods, list(DECODERS))}
    for name, given in parse_options(method_option, list(options)).items():
        options[name] |= given
    options = {name: {"regime": regime, **given} for name, given in options.items()}
    if against is not None:
        require_known("method to compare with", [against], options)
    if setup.data is not None and len({data_folder(find_benchmark(name)) for name in benchmarks}) > 1:
        raise InputError("--data is for one benchmark, but several are compared", hint="leave it out")
    unsteered = steer.missing(options)
    if ray is not None and (tune_all or unsteered):
        wanted = "--tune-all" if tune_all else f"making directions for {unsteered[0]}"
        raise InputError(f"{wanted} does not run on a cluster", hint="leave out --ray")
    claim_report(out, (*FILES, PICTURES))
    if unsteered:
        steer.claim_files(out / STEERING)
        steer.fill_in(options, out / STEERING)
    _add_table(options, setup, table)
    tasks = [_task(name, setup, out) for name in benchmarks]
    tuning = _tuning_task(benchmarks[0], setup, tuning_limit, out) if tune_all or unsteered else None
    for given in options.values():
        require_apart(given, tasks)
    if tuning is not None:
        for task in tasks:
            task.require_apart(tuning.pictures(), "are for tuning")
    tuned: Tuning | None = None
    with only_one(out):
        if ray is not None:
            made = _on_ray(setup, options, tasks, out, ray, against)
        else:
            loaded = setup.load(setup.model)
            if tuning is not None:
                runs = setup.runs(tuning, loaded)
                if unsteered:
                    steer.make(*loaded, runs, out / STEERING)
                if tune_all:
                    from reweigh.lab.arms.tune_all import tune_all as tune

                    tuned = tune(loaded, options, runs, out / "tuning")
            if tuned is None:
                rows = [make_method(name, *loaded, given) for name, given in options.items()]
            else:
                rows = tuned.methods(loaded, options)
            _print_reasons(rows)
            made = run(setup.model, rows, [setup.runs(task, loaded) for task in tasks], out, against=against)
    if tuned is not None:
        made = replace(made, notes=[*made.notes, note(tuned)])
    report = made.report()
    if tuned is not None:
        add_tuning(report.page, tuned)
    files = report.write(out)
    files.append(write_output(out / PICTURES, made.pictures()))
    files += [] if tuned is None else write_frontier(tuned, out)
    common.show_report(report)
    common.finish(
        *files, then=f"open {common.quoted(next((one for one in files if one.suffix == '.html'), out))}"
    )


def _add_table(options: dict[str, dict[str, Any]], setup: ExperimentOptions, table: str | None) -> None:
    """Give the table to the methods that need one, and check all options before a model is loaded."""
    from reweigh.lab.arms.compare.methods import decoder_of
    from reweigh.rivals import DECODERS, check_options

    for name, given in options.items():
        entry = DECODERS[decoder_of(name)]
        if entry.needs_table:
            point = common.Point(table=table, layer=given.get("layer"), beta=given.get("beta"))
            options[name] = given = {**point.options(setup.model), "force": setup.force, **given}
        check_options(name, entry, given)


def _on_ray(
    setup: ExperimentOptions,
    options: dict[str, dict[str, Any]],
    tasks: list[Task],
    out: Path,
    ray: str,
    against: str | None,
) -> Comparison:
    """Compare with the actors of a cluster."""
    from reweigh.lab.arms.compare.on_ray import compare_on

    arguments = {
        **setup.locate(setup.model),
        "methods": options,
        "template": setup.template,
    }
    runs = [setup.runs(task) for task in tasks]
    return compare_on(
        open_cluster(ray), arguments, setup.model, runs, out, against=against, tell=_print_reasons
    )


def _print_reasons(methods: Sequence[Method]) -> None:
    for method in methods:
        if method.reason:
            typer.echo(f"{method.name} is left out: {method.reason}", err=True)


def _task(name: str, setup: ExperimentOptions, out: Path) -> Task:
    from reweigh.lab.tasks import find_benchmark

    if find_benchmark(name).judged:
        raise InputError(
            f"{name} needs a judge model, which a comparison does not use",
            hint="reweigh eval run and reweigh eval score, once for each decoder",
        )
    task = setup.task(name, drawings=out / "pictures")
    task.require_records()
    return task


def _tuning_task(name: str, setup: ExperimentOptions, limit: int | None, out: Path) -> Task:
    """Open the records that a benchmark keeps for tuning, whatever is selected for the evaluation."""
    from reweigh.lab.arms.tune.search import FIGURES
    from reweigh.lab.tasks import find_benchmark

    kept = find_benchmark(name).tuning_options
    if not kept:
        raise InputError(
            f"{name} keeps no records for tuning",
            hint="tuning and steering vectors need world, chair or objects as the first benchmark",
        )
    chosen = [*setup.option, *(f"{option}={value}" for option, value in kept.items())]  # the last one counts
    task = replace(setup, option=chosen, limit=limit).task(name, drawings=out / "tuning" / "pictures")
    task.require(FIGURES, "tuning")
    task.require_records()
    return task
