"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Sequence
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
    from reweigh.runs.task import Task

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def compare(
    model: str = common.MODEL,
    *,
    methods: str = typer.Option(
        "base,sampling,cut,vcd,opera,dola,pai,revisit,reweigh",
        "--methods",
        "-m",
        help="Decoders, separated by commas; vcd@half is a variant of vcd with its own options.",
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
    table: str = common.TABLE,
    cluster: RayOptions,
    loading: common.Loading,
    force: bool = common.FORCE,
) -> None:
    """Answer the same records with every decoder, score them, and write one table with metrics and cost."""
    from reweigh.experiments.compare.methods import parse_methods, parse_options
    from reweigh.experiments.compare.report import claim_files, terminal, write
    from reweigh.files.artifacts import only_one
    from reweigh.rivals import DECODERS

    names = parse_methods(methods, list(DECODERS))
    options = parse_options(method_option, names)
    if selection.data is not None and len(benchmark) > 1:
        raise InputError("--data is for one benchmark, but several are compared", hint="leave it out")
    claim_files(out, force=force)
    tasks = [_task(name, selection, out) for name in benchmark or [benchmark_of(model, None)]]
    options = _with_table(options, model, table, force)
    asked = model, options, tasks, selection, loading, force
    with only_one(out):
        made = _in_process(*asked, out) if cluster.ray is None else _on_ray(*asked, out, cluster)
    files = write(made, out)
    if common.wants_json():
        common.emit_json(made.to_json())
    else:
        common.console().print(terminal(made))
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
) -> Comparison:
    """Compare with a model that this process loads."""
    from reweigh.experiments.compare.methods import make_method
    from reweigh.experiments.compare.study import compare as run

    loaded = loading.load(model)
    rows = [make_method(name, *loaded, given) for name, given in options.items()]
    _print_reasons(rows)
    runs = [selection.runs(task, model, loading, loaded, force=force) for task in tasks]
    return run(model, rows, runs, out)


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
