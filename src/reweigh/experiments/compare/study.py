"""The comparison as a whole: every method on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reweigh.benchmarks import find_benchmark
from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.estimate import Estimate
from reweigh.experiments.compare.cost import total
from reweigh.experiments.compare.degenerate import degenerate, read_texts
from reweigh.experiments.compare.fluency import ReadAgain, broken_shares, one_by_one, reading
from reweigh.experiments.compare.methods import Method
from reweigh.experiments.compare.run import Turns, answer_all, in_turns, read_costs
from reweigh.experiments.compare.table import Comparison, Figure, Row, Shading, cost_figures, ratios
from reweigh.results.evaluation import write_report
from reweigh.runs.results import read_scored
from reweigh.runs.task import Runs, Scored

DECIDING = 100
"""Records below which a comparison says that it decides nothing."""

Scores = Mapping[str, Mapping[str, Scored]]
"""For each benchmark the scored run of each method that was served."""


def compare(
    model: str,
    methods: Sequence[Method],
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    shading: Shading = "interval",
    executor_of: Callable[[Runs], Executor] | None = None,
) -> Comparison:
    """Answer every benchmark with every method into folders below ``out``, score them, and build the table.

    ``executor_of`` says who does the work of a benchmark, if not the methods' own sessions.
    """
    scores, broken = {}, {}
    for runs in benchmarks:
        name = runs.task.name
        executor = own_executor(methods, runs) if executor_of is None else executor_of(runs)
        scores[name] = answer_and_score(runs, methods, out / name, executor.turns)
        texts = {method: read_texts(out / name / method) for method in scores[name]}
        broken[name] = broken_shares(executor.read_again, runs, texts)
    return build(model, methods, scores, out, shading=shading, broken=broken)


@dataclass(frozen=True)
class Executor:
    """Who does the work of one benchmark.

    Attributes:
        turns: Answers batches.
        read_again: Reads finished texts again, to find broken ones.
    """

    turns: Turns
    read_again: ReadAgain


def own_executor(methods: Sequence[Method], runs: Runs) -> Executor:
    """Do it with the sessions of the methods."""
    sessions = {method.name: method.session for method in methods if method.session is not None}
    first = next(iter(sessions.values()))
    reader = reading(first.model, first.processor, template=runs.template)
    return Executor(in_turns(sessions, template=runs.template), one_by_one(reader))


def answer_and_score(runs: Runs, methods: Sequence[Method], out: Path, turns: Turns) -> dict[str, Scored]:
    """Answer one benchmark with every method that is served, and score the answers."""
    folders = open_folders(runs, methods, out)
    answer_all(turns, runs, folders)
    scores = {name: runs.score(folder) for name, folder in folders.items()}
    for folder in folders.values():
        write_report(read_scored(folder), images=runs.task.images)
    return scores


def open_folders(runs: Runs, methods: Sequence[Method], out: Path) -> dict[str, Path]:
    """The run folder of each method that is served, begun or found to hold the same run."""
    served = [method for method in methods if method.reason is None]
    for method in served:
        runs.open(out / method.name, method.decoding)
    return {method.name: out / method.name for method in served}


def build(
    model: str,
    methods: Sequence[Method],
    scores: Scores,
    out: Path,
    *,
    shading: Shading = "interval",
    broken: Mapping[str, Mapping[str, float]] | None = None,
) -> Comparison:
    """Put figures with intervals, differences to the base and cost of all methods into one table."""
    figures: list[Figure] = []
    keys: list[tuple[str, str]] = []
    for name, found in scores.items():
        benchmark = find_benchmark(name)
        for info in benchmark.headlines(list(next(iter(found.values())).summary.metrics)):
            figures.append(Figure(benchmark.heading(), info.title, info.direction))
            keys.append((name, info.name))
    costs = {method.name: _cost(method, scores, out) for method in methods}
    base = costs[methods[0].name]
    rows = []
    for method in methods:
        metrics = [_metric(scores[name].get(method.name), metric) for name, metric in keys]
        values = [None if metric is None else metric.value for metric in metrics]
        values += ratios(costs[method.name], base)
        regime = method.regime_in_words() if method.reason is None else ""
        differences = [] if method is methods[0] else _differences(method, methods[0], scores, keys)
        runs = {name: f"{name}/{method.name}" for name, found in scores.items() if method.name in found}
        rows.append(Row(method.title, values, regime, method.reason, metrics, differences, runs))
    notes = [_note(scores, base["latency"]), *degenerate(methods, scores, out, broken or {})]
    return Comparison(model, [*figures, *cost_figures()], rows, notes, shading)


def _metric(run: Scored | None, name: str) -> Estimate | None:
    return None if run is None else run.summary.metrics[name]


def _differences(
    method: Method, base: Method, scores: Scores, keys: Sequence[tuple[str, str]]
) -> list[Estimate | None]:
    """Paired differences to the base, drawing the same images for both."""
    paired: dict[str, Mapping[str, Estimate]] = {}
    for name, found in scores.items():
        if method.name in found:
            formula = find_benchmark(name).figures
            paired[name] = paired_difference(found[base.name].items, found[method.name].items, formula)
    return [paired[name].get(metric) if name in paired else None for name, metric in keys]


def _cost(method: Method, scores: Scores, out: Path) -> dict[str, float | None]:
    whole = total([cost for name in scores for cost in read_costs(out / name / method.name)])
    return {
        "latency": None if whole is None else whole.seconds_per_token,
        "memory": None if whole is None or whole.peak is None else float(whole.peak),
    }


def _note(scores: Scores, per_token: float | None) -> str:
    counts = ", ".join(
        f"{next(iter(found.values())).summary.n:,} records of {name}" for name, found in scores.items()
    )
    speed = "" if per_token is None else f" Greedy takes {1000 * per_token:.2f} ms per token here."
    few = min(next(iter(found.values())).summary.n for found in scores.values()) < DECIDING
    warned = f" Fewer than {DECIDING} records decide nothing: look at the intervals." if few else ""
    return (
        f"{counts}; brackets are 95% image-bootstrap intervals.{warned} Lat. and Mem. are time per token and peak memory "
        f"over greedy's, taken in turns in one run, each method warmed up.{speed}"
    )
