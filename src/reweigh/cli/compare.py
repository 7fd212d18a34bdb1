"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.cluster import RayOptions, loading
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.experiments.compare.methods import Method
    from reweigh.experiments.compare.table import Comparison, Shading
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
        ["world"], "--benchmark", "-b", help="world, chair, amber-generative, pope ...; repeatable."
    ),
    out: Path = typer.Option(
        Path("comparison"), "--out", "-o", help="Output folder; a stopped comparison resumes there."
    ),
    selection: BenchmarkOptions,
    method_option: list[str] = typer.Option(
        [], help="Option of a method or variant, as method.option=value; repeatable."
    ),
    shading: str = typer.Option(
        "interval",
        help="Shade differences beyond chance (interval), or from 5% on as the paper does (paper).",
    ),
    point: common.Point,
    cluster: RayOptions,
    weights: common.Weights,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Answer the same records with every decoder, score them, and write one table with metrics and cost."""
    from reweigh.experiments.compare.methods import parse_methods, parse_options
    from reweigh.experiments.compare.report import terminal, write
    from reweigh.files.artifacts import only_one
    from reweigh.rivals import DECODERS

    if shading not in ("interval", "paper"):
        raise InputError(f"{shading!r} is not a shading", hint="interval or paper")
    names = parse_methods(methods, list(DECODERS))
    options = parse_options(method_option, names)
    if selection.data is not None and len(benchmark) > 1:
        raise InputError("--data is for one benchmark, but several are compared", hint="leave it out")
    tasks = [_task(name, selection, out) for name in benchmark]
    options = _with_point(options, model, point, force)
    shade: Shading = "paper" if shading == "paper" else "interval"
    asked = model, options, tasks, selection, weights
    with only_one(out):
        if cluster.ray is None:
            made = _in_process(*asked, out, shade)
        else:
            made = _on_ray(*asked, out, shade, cluster)
    files = write(made, out)
    if as_json:
        common.emit_json(made.to_json())
    else:
        console = common.console()
        console.print(terminal(made))
    common.note(f"tables: {', '.join(map(str, files))}")


def _with_point(
    options: dict[str, dict[str, Any]], model: str, point: common.Point, force: bool
) -> dict[str, dict[str, Any]]:
    """Options by method, checked; the table, layer and beta go to the methods that need a table."""
    from reweigh.experiments.compare.methods import decoder_of
    from reweigh.rivals import DECODERS, check_options

    found = {}
    for name, given in options.items():
        entry = DECODERS[decoder_of(name)]
        own = {**point.options(model), "force": force} if entry.needs_table else {}
        found[name] = {**own, **given}
        check_options(name, entry, found[name])
    return found


def _in_process(
    model: str,
    options: dict[str, dict[str, Any]],
    tasks: list[Task],
    selection: BenchmarkOptions,
    weights: common.Weights,
    out: Path,
    shading: Shading,
) -> Comparison:
    """Compare with a model that this process loads."""
    from reweigh.experiments.compare.methods import make_method
    from reweigh.experiments.compare.study import compare as run

    loaded = weights.load(model)
    rows = [make_method(name, *loaded, given) for name, given in options.items()]
    _print_reasons(rows)
    runs = [selection.runs(task, model, weights, loaded) for task in tasks]
    return run(model, rows, runs, out, shading=shading)


def _on_ray(
    model: str,
    options: dict[str, dict[str, Any]],
    tasks: list[Task],
    selection: BenchmarkOptions,
    weights: common.Weights,
    out: Path,
    shading: Shading,
    cluster: RayOptions,
) -> Comparison:
    """Compare with the actors of a cluster."""
    from reweigh.experiments.compare.on_ray import compare_on

    arguments = {
        **loading(model, weights),
        "methods": options,
        "template": selection.template,
        "where": str(Path.cwd()),
    }
    runs = [selection.runs(task, model, weights) for task in tasks]
    return compare_on(cluster.cluster(), arguments, model, runs, out, shading=shading, tell=_print_reasons)


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
