"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.asking import Asked
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.runs.task import Runs, Scored, Task
    from reweigh.studies.compare.methods import Method
    from reweigh.studies.compare.table import Comparison

app = typer.Typer(add_completion=False)

FILES = ("comparison.md", "comparison.html", "comparison.tex", "comparison.json")


@app.command()
@grouped
def compare(
    model: str = common.MODEL,
    *,
    methods: str = typer.Option(
        "base,vcd,opera,dola,pai,revisit,reweigh", "--methods", "-m", help="Decoders, separated by commas."
    ),
    benchmark: list[str] = typer.Option(
        ["world"], "--benchmark", "-b", help="world, chair, amber-generative, pope ...; may be repeated."
    ),
    out: Path = typer.Option(Path("comparison"), "--out", help="Folder; a stopped comparison goes on there."),
    asked: Asked,
    method_option: list[str] = typer.Option(
        [], help="Option of a method, method.option=value; may be repeated."
    ),
    point: common.Point,
    weights: common.Weights,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Answer the same records with every method, score them, and write one table with cost as ratios to greedy."""
    from reweigh.artifacts import write_json, write_text
    from reweigh.decoders import DECODERS
    from reweigh.runs.record import only_one
    from reweigh.studies.compare.methods import make_method, parse_methods, parse_options

    names = parse_methods(methods, list(DECODERS))
    options = parse_options(method_option, names)
    if asked.data is not None and len(benchmark) > 1:
        raise InputError(
            "--data names the files of one benchmark, but several are compared", hint="leave it out"
        )
    tasks = [_task(name, asked, out) for name in benchmark]
    if "reweigh" in names:
        where, block, bound = point.of(model)
        options["reweigh"] = {
            "table": where,
            "layer": block,
            "beta": bound,
            "force": force,
            **options["reweigh"],
        }
    loaded = weights.load(model)
    rows = [make_method(name, *loaded, options[name]) for name in names]
    for method in rows:
        if method.reason:
            typer.echo(f"{method.name} is left out: {method.reason}", err=True)
    with only_one(out):
        scored = [
            _answer_and_score(asked.runs(task, model, weights, loaded), rows, out / task.name)
            for task in tasks
        ]
    made = build(model, rows, scored, out)
    write_text(out / FILES[0], made.markdown())
    write_text(out / FILES[1], made.html())
    write_text(out / FILES[2], made.latex())
    write_json(out / FILES[3], made.to_json())
    if as_json:
        common.emit_json(made.to_json())
    else:
        common.console().print(made.terminal())
    typer.echo(f"tables: {', '.join(str(out / name) for name in FILES)}", err=True)


def _task(name: str, asked: Asked, out: Path) -> Task:
    import inspect

    from reweigh.benchmarks.base import BENCHMARKS

    if "judge" in inspect.signature(BENCHMARKS[name]).parameters:
        raise InputError(
            f"{name} is scored by a judge model, which a comparison does not ask",
            hint="reweigh eval run and reweigh eval score, once for each decoder",
        )
    task = asked.task(name, beside=out / "pictures")
    task.require_records()
    return task


def _answer_and_score(runs: Runs, methods: list[Method], out: Path) -> tuple[str, dict[str, Scored]]:
    from reweigh.studies.compare.run import answer_all

    served = [method for method in methods if method.attached is not None]
    folders = [out / method.name for method in served]
    for method, folder in zip(served, folders, strict=True):
        runs.open(folder, method.told())
    answer_all(served, runs, folders)
    return runs.task.name, {
        method.name: runs.score(folder) for method, folder in zip(served, folders, strict=True)
    }


def build(
    model: str,
    methods: list[Method],
    scored: list[tuple[str, dict[str, Scored]]],
    out: Path,
) -> Comparison:
    """Put figures and cost of all methods into one table."""
    from reweigh.report.evaluation import TITLES, headlines, label
    from reweigh.runs.score import direction
    from reweigh.studies.compare.cost import total
    from reweigh.studies.compare.run import read_costs
    from reweigh.studies.compare.table import Comparison, Figure, Row, cost_figures, ratios

    figures: list[Figure] = []
    keys: list[tuple[int, str]] = []
    for place, (name, found) in enumerate(scored):
        metrics = next(iter(found.values())).summary.metrics
        for metric in headlines(name, list(metrics)):
            figures.append(Figure(TITLES.get(name, name), label(metric), direction(metric)))
            keys.append((place, metric))
    costs = {}
    for method in methods:
        every = [cost for name, _ in scored for cost in read_costs(out / name / method.name)]
        whole = total(every)
        costs[method.name] = {
            "latency": None if whole is None else whole.seconds_per_token,
            "memory": None if whole is None or whole.peak is None else float(whole.peak),
        }
    rows = []
    for method in methods:
        values: list[float | None] = []
        for place, metric in keys:
            pair = scored[place][1].get(method.name)
            values.append(None if pair is None else pair.summary.metrics[metric].value)
        values += ratios(costs[method.name], costs[methods[0].name])
        regime = method.regime_in_words() if method.attached is not None else ""
        rows.append(Row(method.title, values, regime, method.reason))
    counts = ", ".join(
        f"{next(iter(found.values())).summary.n:,} records of {name}" for name, found in scored
    )
    per_token = costs[methods[0].name]["latency"]
    speed = "" if per_token is None else f" Greedy takes {1000 * per_token:.2f} ms per token here."
    note = f"{counts}. Lat. and Mem. are time per token and peak memory over greedy's, taken in turns in one run.{speed}"
    return Comparison(model, [*figures, *cost_figures()], rows, [note])
