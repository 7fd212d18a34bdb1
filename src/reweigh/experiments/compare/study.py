"""The comparison as a whole: every method on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reweigh.benchmarks import find_benchmark
from reweigh.experiments.compare.cost import LATENCY, BatchCost, Total
from reweigh.experiments.compare.fluency import ReadAgain, broken_shares, degenerate, one_by_one, reading
from reweigh.experiments.compare.methods import CONTROLLED, CONTROLS, Method, decoder_of, settings_in_words
from reweigh.experiments.compare.report import Comparison, MethodRow, cost_columns, figure_column
from reweigh.experiments.experiment import Arm, Experiment
from reweigh.results.evaluation import write_report
from reweigh.results.frame import AGAINST, Frame, Row
from reweigh.results.table import Column
from reweigh.runs.run import Turns
from reweigh.runs.task import Runs, Scored

DECIDING = 100
"""A comparison of fewer records says that it decides nothing."""

Scores = Mapping[str, Mapping[str, Scored]]
"""For each benchmark the scored run of each method that was served."""


@dataclass(frozen=True)
class Executor:
    """Who does the work of one benchmark.

    Attributes:
        turns: Answers batches; the methods' own sessions if None.
        read_again: Reads finished texts again, to find broken ones.
    """

    turns: Turns | None
    read_again: ReadAgain


def compare(
    model: str,
    methods: Sequence[Method],
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    executor_of: Callable[[Runs], Executor] | None = None,
) -> Comparison:
    """Answer every benchmark with every method into folders below ``out``, score them, and build the table.

    ``executor_of`` says who does the work of a benchmark, if not the methods' own sessions.
    """
    scores: dict[str, Mapping[str, Scored]] = {}
    broken: dict[str, dict[str, float]] = {}
    costs: dict[str, dict[tuple[str, int], BatchCost]] = {method.name: {} for method in methods}
    rows: list[Row] = []
    for runs in benchmarks:
        name = runs.task.name
        executor = own_executor(methods, runs) if executor_of is None else executor_of(runs)
        experiment = Experiment(
            runs,
            served_arms(methods, runs),
            out / name,
            rotate=True,
            turns=executor.turns,
            what="comparing",
        )
        rows += experiment.run(methods[0].name)
        scores[name] = experiment.scored
        for arm in experiment.arms:
            noted = experiment.notes(arm)
            costs[arm.name] |= {(name, row.pop("start")): BatchCost(**row) for row in noted}
        for scored in experiment.scored.values():
            if scored.run is not None:
                write_report(scored.run, images=runs.task.images)
        texts = {method: scored.texts for method, scored in experiment.scored.items()}
        broken[name] = broken_shares(executor.read_again, runs, texts)
    totals = {name: Total(found) for name, found in costs.items()}
    return build(model, methods, scores, Frame(rows), totals, broken=broken)


def own_executor(methods: Sequence[Method], runs: Runs) -> Executor:
    """Do it with the sessions of the methods."""
    first = next(method.session for method in methods if method.session is not None)
    return Executor(None, one_by_one(reading(first.model, first.processor, template=runs.template)))


def served_arms(methods: Sequence[Method], runs: Runs) -> list[Arm]:
    """The arms of the methods that the model can serve."""
    return [method.arm(template=runs.template) for method in methods if method.reason is None]


def build(
    model: str,
    methods: Sequence[Method],
    scores: Scores,
    found: Frame,
    costs: Mapping[str, Total],
    *,
    broken: Mapping[str, Mapping[str, float]] | None = None,
) -> Comparison:
    """Put figures with intervals, differences to the base and cost of all methods into one table."""
    columns: list[Column] = []
    keys: list[tuple[str, str]] = []
    for name, runs in scores.items():
        benchmark = find_benchmark(name)
        for info in benchmark.headlines(list(next(iter(runs.values())).summary.metrics)):
            columns.append(figure_column(benchmark.heading(), info.title, info.direction))
            keys.append((name, info.name))
    estimates = {(row["benchmark"], row["arm"], row["figure"], row[AGAINST]): row.estimate for row in found}
    base = methods[0]
    rows, cost_rows = [], []
    for method in methods:
        cost = [
            costs[method.name].latency_over(costs[base.name]),
            costs[method.name].memory_over(costs[base.name]),
        ]
        metrics = [estimates.get((name, method.name, metric, None)) for name, metric in keys]
        changes = [estimates.get((name, method.name, metric, base.name)) for name, metric in keys]
        answered = {name: found[method.name] for name, found in scores.items() if method.name in found}
        folders = {name: f"{name}/{method.name}" for name in answered}
        pages = {name: one.run for name, one in answered.items() if one.run is not None}
        served = method.reason is None
        rows.append(
            MethodRow(
                method.title,
                [*metrics, *cost],
                [] if method is base else changes,
                regime=method.regime_in_words() if served else "",
                reason=method.reason,
                runs=folders,
                settings=settings_in_words(method.decoding) if served else "",
                scored=pages,
            )
        )
        for figure, one in zip((LATENCY, "memory"), cost, strict=True):
            cost_keys = {"benchmark": None, "arm": method.name, "figure": figure, AGAINST: None}
            cost_rows.append(Row(cost_keys, one))
    notes = [_note(scores, costs[base.name].seconds_per_token), *degenerate(methods, scores, broken or {})]
    if any(decoder_of(method.name) in CONTROLS for method in methods):
        notes.append(CONTROLLED)
    about = {
        "model": model,
        "reference": base.name,
        "arms": {method.name: dict(method.decoding) for method in methods if method.reason is None},
        "left_out": {method.name: method.reason for method in methods if method.reason is not None},
    }
    whole = Frame([*found, *cost_rows], about)
    return Comparison(model, [*columns, *cost_columns()], rows, notes, frame=whole)


def _note(scores: Scores, per_token: float | None) -> str:
    counts = ", ".join(
        f"{next(iter(found.values())).summary.n:,} records of {name}" for name, found in scores.items()
    )
    speed = "" if per_token is None else f" Greedy takes {1000 * per_token:.2f} ms per token here."
    few = min(next(iter(found.values())).summary.n for found in scores.values()) < DECIDING
    warned = f" Fewer than {DECIDING} records decide nothing: look at the intervals." if few else ""
    return (
        f"{counts}; brackets are 95% image-bootstrap intervals.{warned} Lat. and Mem. are time per token and peak memory "
        "relative to greedy, measured in turns in one run after a warm-up; the interval of Lat. draws batches, the same "
        f"for both.{speed}"
    )
