"""The comparison as a whole: every method on the same records, then one table of figures and cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.errors import require_known
from reweigh.lab.arms.compare.cost import CACHED, CACHED_RECORDS, LATENCY, MEMORY, Total, memory_of
from reweigh.lab.arms.compare.fluency import broken_share, degenerate
from reweigh.lab.arms.compare.methods import CONTROLLED, CONTROLS, Method, decoder_of
from reweigh.lab.arms.compare.report import COST, Comparison
from reweigh.lab.arms.compare.report import LATENCY as LATENCY_COLUMN
from reweigh.lab.enough import too_few
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.task import Runs
from reweigh.lab.runs.texts import empty, unchanged, unfinished
from reweigh.lab.study import Study, Workers
from reweigh.lab.tasks import find_benchmark
from reweigh.lab.views.contrast import Contrast, Keys
from reweigh.lab.views.evaluation import write_report
from reweigh.lab.views.table import RATIO, Column

COLUMNS = {LATENCY: LATENCY_COLUMN, MEMORY: "Mem."}


def compare(
    model: str,
    methods: Sequence[Method],
    benchmarks: Sequence[Runs],
    out: Path,
    *,
    against: str | None = None,
    workers: Workers | None = None,
) -> Comparison:
    """Answer every benchmark with every method into folders below ``out``, score them, and build the table.

    ``against`` names the method that the others are compared with, if it is not the base. ``workers`` answer if
    the methods have no sessions in this process.
    """
    first = methods[0].name
    reference = first if against is None else against
    require_known("method", [reference], [one.name for one in methods if one.reason is None])
    arms = [method.arm() for method in methods if method.reason is None]
    study = Study(
        benchmarks, arms, out, reference=reference, interleave=True, workers=workers, what="comparing"
    )
    rows = [*study.run()]
    scored = study.scored
    costs: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {method.name: {} for method in methods}
    broken: dict[str, dict[str, float]] = {runs.task.name: {} for runs in benchmarks}
    for runs in benchmarks:
        for arm in arms:
            noted = study.notes(runs, arm)
            costs[arm.name] |= {(runs.task.name, part): note for part, note in enumerate(noted)}
            broken[runs.task.name][arm.name] = broken_share(noted)
        rows += text_rows(runs.task.name, scored[runs.task.name], first)
        for one in scored[runs.task.name].values():
            write_report(one, images=runs.task.images)
    totals = {name: Total(found) for name, found in costs.items()}
    base = totals[first]
    for name, total in totals.items():
        for figure, cost in total.over(base).items():
            rows.append(Row({"benchmark": None, "arm": name, "figure": figure, AGAINST: None}, cost))
    memory = memory_of(benchmarks[0].model.get("device"))
    about: dict[str, Any] = {
        "model": model,
        "reference": reference,
        "benchmarks": {name: next(iter(found.values())).about for name, found in scored.items()},
        "arms": {method.name: dict(method.decoding) for method in methods if method.reason is None},
        "memory": memory,
        "left_out": {method.name: method.reason for method in methods if method.reason is not None},
    }
    frame = Frame(rows, about)
    apart = {
        method.title: other
        for method in methods
        if (other := totals[method.name].other_clock(base)) is not None
    }
    notes = [_note(scored, base.seconds_per_token, memory, apart), *_cached_note(frame, methods)]
    notes += degenerate(methods, scored, broken)
    for runs in benchmarks:
        base_texts = list(scored[runs.task.name][methods[0].name].texts.values())
        notes += runs.task.bench.remarks(base_texts)
    if any(decoder_of(method.name) in CONTROLS for method in methods):
        notes.append(CONTROLLED)
    contrast = contrast_of(frame, methods, figure_columns(scored), reference)
    return Comparison(model, methods, contrast, scored, notes)


def text_rows(benchmark: str, scored: Mapping[str, Scored], base: str) -> Iterator[Row]:
    """Yield the shares of texts that are unfinished, empty, or those of the base."""
    for arm, run in scored.items():
        texts = list(run.texts.values())
        shares = {
            "unfinished": unfinished(texts),
            "empty": empty(texts),
            "unchanged": None if arm == base else unchanged(run.texts, scored[base].texts),
        }
        for figure, share in shares.items():
            keys = {"benchmark": benchmark, "arm": arm, "figure": figure, AGAINST: None}
            yield Row(keys, Estimate(None if share is None else 100.0 * share))


def figure_columns(scored: Mapping[str, Mapping[str, Scored]]) -> list[tuple[Column, Keys]]:
    """Return the columns of every benchmark's headlines."""
    columns: list[tuple[Column, Keys]] = []
    for name, runs in scored.items():
        benchmark = find_benchmark(name)
        for info in benchmark.headlines(list(next(iter(runs.values())).summary.metrics)):
            head = Column(info.title, info.direction, 2, group=benchmark.title)
            columns.append((head, {"benchmark": name, "figure": info.name}))
    return columns


def contrast_of(
    frame: Frame, methods: Sequence[Method], columns: Sequence[tuple[Column, Keys]], reference: str
) -> Contrast:
    """Compare the methods with one of them by some figures and both kinds of cost."""
    costs: list[tuple[Column, Keys]] = [
        (
            Column(title, "lower", 2, unit=RATIO, group=COST, ranked=False),
            {"benchmark": None, "figure": figure},
        )
        for figure, title in COLUMNS.items()
    ]
    rows = [(method.title, {"arm": method.name}) for method in methods]
    base = [method.name for method in methods].index(reference)
    versus = "the base" if base == 0 else methods[base].title
    return Contrast(frame, rows, [*columns, *costs], reference=reference, base=base, versus=versus)


def _note(
    scored: Mapping[str, Mapping[str, Scored]], per_token: float | None, memory: str, apart: Mapping[str, str]
) -> str:
    counts = {name: next(iter(found.values())).summary.n for name, found in scored.items()}
    records = ", ".join(f"{count:,} records of {name}" for name, count in counts.items())
    few = too_few(min(counts.values()))
    warned = "" if few is None else f" {few[0].upper()}{few[1:]} to claim a difference."
    how = "methods are interleaved in one run after a warm-up"
    if apart:
        listed = ", ".join(f"{title} ({clock})" for title, clock in apart.items())
        how = f"timed in another run than greedy, so not comparable: {listed}; the others are interleaved with it"
    speed = "" if per_token is None else f" Greedy takes {1000 * per_token:.2f} ms per token here."
    return (
        f"{records}.{warned} Lat. and Mem. are time per token and peak memory ({memory}) relative to greedy; {how}, and "
        f"the interval of Lat. draws batches, the same for both.{speed}"
    )


def _cached_note(frame: Frame, methods: Sequence[Method]) -> list[str]:
    """Say what a method costs whose evidence was measured before, as in a second question about a picture."""
    found = {
        method.title: cost
        for method in methods
        if (cost := frame.get(benchmark=None, arm=method.name, figure=CACHED, against=None)) is not None
    }
    return [
        f"With evidence that was measured before, the time per token of {title} is {cost.text(3)} times greedy's "
        f"(first {CACHED_RECORDS} records of each benchmark)."
        for title, cost in found.items()
    ]
