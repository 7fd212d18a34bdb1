"""The comparison as a whole: every method on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reweigh.benchmarks import find_benchmark
from reweigh.runs.task import Runs, Scored
from reweigh.studies.compare.cost import total
from reweigh.studies.compare.methods import Method
from reweigh.studies.compare.run import answer_all, read_costs
from reweigh.studies.compare.table import Comparison, Figure, Row, cost_figures, ratios

Scores = Mapping[str, Mapping[str, Scored]]
"""For each benchmark the scored run of each method that was served."""


def compare(model: str, methods: Sequence[Method], benchmarks: Sequence[Runs], out: Path) -> Comparison:
    """Answer every benchmark with every method into folders below ``out``, score them, and build the table."""
    scores = {runs.task.name: answer_and_score(runs, methods, out / runs.task.name) for runs in benchmarks}
    return build(model, methods, scores, out)


def answer_and_score(runs: Runs, methods: Sequence[Method], out: Path) -> dict[str, Scored]:
    """Answer one benchmark with every method that is served, and score the answers."""
    sessions = {method.name: method.session for method in methods if method.session is not None}
    folders = {name: out / name for name in sessions}
    for name, session in sessions.items():
        runs.open(folders[name], session.record())
    answer_all(list(sessions.values()), runs, list(folders.values()))
    return {name: runs.score(folder) for name, folder in folders.items()}


def build(model: str, methods: Sequence[Method], scores: Scores, out: Path) -> Comparison:
    """Put figures and cost of all methods into one table."""
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
        values: list[float | None] = []
        for name, metric in keys:
            run = scores[name].get(method.name)
            values.append(None if run is None else run.summary.metrics[metric].value)
        values += ratios(costs[method.name], base)
        regime = method.regime_in_words() if method.session is not None else ""
        rows.append(Row(method.title, values, regime, method.reason))
    return Comparison(model, [*figures, *cost_figures()], rows, [_note(scores, base["latency"])])


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
    return f"{counts}. Lat. and Mem. are time per token and peak memory over greedy's, taken in turns in one run.{speed}"
