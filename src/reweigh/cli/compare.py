"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions, benchmark_of
from reweigh.cli.cluster import RayOptions, loading_arguments
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.experiments.compare.methods import Method
    from reweigh.experiments.compare.table import Comparison
    from reweigh.experiments.tune_all.study import Tuning
    from reweigh.runs.task import Task

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def compare(
    model: str = common.MODEL,
    *,
    methods: str = typer.Option(
        None,
        "--methods",
        "-m",
        help="Decoders, separated by commas; vcd@half is a variant of vcd with its own options. By default baselines, "
        "controls, the paper's rivals and reweigh.",
    ),
    benchmark: list[str] = typer.Option(
        [],
        "--benchmark",
        "-b",
        help="chair, amber-generative, pope, objects ...; repeatable, and not needed for `world`.",
    ),
    out: Path = typer.Option(
        Path("comparison"), "--out", "-o", help="Output folder; a stopped comparison resumes there."
    ),
    selection: BenchmarkOptions,
    method_option: list[str] = typer.Option(
        [], metavar="METHOD.NAME=VALUE", help="Option of a method or variant; repeatable."
    ),
    tune_all: bool = typer.Option(
        False,
        "--tune-all",
        help="Also tune every decoder alike on tuning records, and add a tuned row for each.",
    ),
    tuning_limit: int = typer.Option(
        None, min=1, help="With --tune-all, use only the first N tuning records."
    ),
    table: str = common.TABLE,
    cluster: RayOptions,
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Answer the same records with every decoder, score them, and write one table with metrics and cost."""
    from reweigh.benchmarks.base import find_benchmark
    from reweigh.benchmarks.open import data_folder
    from reweigh.experiments.compare.methods import parse_methods, parse_options, standard_methods
    from reweigh.experiments.compare.report import claim_files, terminal, write
    from reweigh.experiments.tune_all.page import note, settings_table, tuning_section, write_frontier
    from reweigh.files.artifacts import only_one
    from reweigh.rivals import DECODERS

    benchmarks = benchmark or [benchmark_of(model, None)]
    standard: dict[str, dict[str, Any]] = standard_methods(benchmarks) if methods is None else {}
    names = list(standard) if methods is None else parse_methods(methods, list(DECODERS))
    given = parse_options(method_option, names)
    if selection.data is not None and len({data_folder(find_benchmark(name)) for name in benchmarks}) > 1:
        raise InputError("--data is for one benchmark, but several are compared", hint="leave it out")
    if tune_all and cluster.ray is not None:
        raise InputError("--tune-all does not run on a cluster", hint="leave out --ray")
    claim_files(out, force=force)
    tasks = [_task(name, selection, out) for name in benchmarks]
    tuning = _tuning_task(benchmarks[0], selection, tuning_limit, out) if tune_all else None
    options = _with_table(
        {name: {**standard.get(name, {}), **given[name]} for name in names}, model, table, force
    )
    asked = model, options, tasks, selection, loading, force
    tuned = None
    with only_one(out):
        if cluster.ray is None:
            made, tuned = _in_process(*asked, out, tuning)
        else:
            made = _on_ray(*asked, out, cluster)
    if tuned is not None:
        made = replace(made, notes=[*made.notes, note(tuned)])
    files = write(made, out, [] if tuned is None else tuning_section(tuned))
    files += [] if tuned is None else write_frontier(tuned, out)
    if common.wants_json():
        common.emit_json(made.to_json())
    else:
        common.console().print(*([] if tuned is None else [settings_table(tuned)]), terminal(made))
    common.finish(*files, then=f"open {next((one for one in files if one.suffix == '.html'), out)}")


def _with_table(
    options: dict[str, dict[str, Any]], model: str, table: str | None, force: bool
) -> dict[str, dict[str, Any]]:
    """Options by method, checked; the table goes to the methods that need one."""
    from reweigh.experiments.compare.methods import decoder_of
    from reweigh.rivals import DECODERS, check_options

    found = {}
    for name, given in options.items():
        entry = DECODERS[decoder_of(name)]
        point = common.Point(table=table, layer=given.get("layer"), beta=given.get("beta"))
        own = {**point.options(model), "force": force} if entry.needs_table else {}
        found[name] = {**own, **given}
        check_options(name, entry, found[name])
    return found


def _in_process(
    model: str,
    options: dict[str, dict[str, Any]],
    tasks: list[Task],
    selection: BenchmarkOptions,
    loading: common.Loading,
    force: bool,
    out: Path,
    tuning: Task | None,
) -> tuple[Comparison, Tuning | None]:
    """Compare with a model that this process loads, after tuning every method if there are records for it."""
    from reweigh.experiments.compare.methods import make_method
    from reweigh.experiments.compare.study import compare as run
    from reweigh.experiments.tune_all.study import tune_all

    loaded = loading.load(model)
    if tuning is None:
        tuned, rows = None, [make_method(name, *loaded, given) for name, given in options.items()]
    else:
        tuned = tune_all(
            loaded, options, selection.runs(tuning, model, loading, loaded, force=force), out / "tuning"
        )
        rows = tuned.methods(loaded, options)
    _print_reasons(rows)
    runs = [selection.runs(task, model, loading, loaded, force=force) for task in tasks]
    return run(model, rows, runs, out), tuned


def _on_ray(
    model: str,
    options: dict[str, dict[str, Any]],
    tasks: list[Task],
    selection: BenchmarkOptions,
    loading: common.Loading,
    force: bool,
    out: Path,
    cluster: RayOptions,
) -> Comparison:
    """Compare with the actors of a cluster."""
    from reweigh.experiments.compare.on_ray import compare_on

    arguments = {
        **loading_arguments(model, loading),
        "methods": options,
        "template": loading.template,
        "where": str(Path.cwd()),
    }
    runs = [selection.runs(task, model, loading, force=force) for task in tasks]
    return compare_on(cluster.cluster(), arguments, model, runs, out, tell=_print_reasons)


def _print_reasons(methods: Sequence[Method]) -> None:
    for method in methods:
        if method.reason:
            typer.echo(f"{method.name} is left out: {method.reason}", err=True)


def _task(name: str, selection: BenchmarkOptions, out: Path) -> Task:
    from reweigh.benchmarks import find_benchmark

    if find_benchmark(name).judged:
        raise InputError(
            f"{name} needs a judge model, which a comparison does not use",
            hint="reweigh eval run and reweigh eval score, once for each decoder",
        )
    task = selection.task(name, drawings=out / "pictures")
    task.require_records()
    return task


def _tuning_task(name: str, selection: BenchmarkOptions, limit: int | None, out: Path) -> Task:
    """The records of a benchmark that are kept for choices, whatever is selected for the evaluation."""
    from reweigh.benchmarks import find_benchmark
    from reweigh.experiments.tune.search import FIGURES

    kept = find_benchmark(name).tuning_options
    if not kept:
        raise InputError(
            f"{name} keeps no records for tuning",
            hint="--tune-all tunes on the first benchmark: world or chair",
        )
    chosen = [
        *selection.option,
        *(f"{option}={value}" for option, value in kept.items()),
    ]  # the last one counts
    task = replace(selection, option=chosen, limit=limit).task(name, drawings=out / "tuning" / "pictures")
    task.require(FIGURES, "tuning")
    task.require_records()
    return task
