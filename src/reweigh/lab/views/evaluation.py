"""The pages and tables of scored runs: of one, and of two compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.diff import WRONG, Change, Difference
from reweigh.lab.runs.record import REPORT
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Direction, MetricInfo
from reweigh.lab.views.examples import EXAMPLES, FindImage, add_examples, example
from reweigh.lab.views.html import legend, part
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Cell, Column, Table


def write_report(run: Scored, *, data: Path | None = None, images: Path | None = None) -> Path:
    """Write the page of a scored run into its folder; ``data`` and ``images`` are where its images may be."""
    page = evaluation_page(run, run.image_finder(data=data, images=images))
    return page.write(run.folder / REPORT)


def evaluation_page(run: Scored, find: FindImage = lambda _: None) -> Page:
    """Return the page of a scored run; ``find`` gives the image file of an item, if there is one."""
    summary, benchmark = run.summary, run.benchmark
    page = Page(f"{benchmark.title}: {run.title}", lead=_lead(run), footer="Written by reweigh eval score.")
    headlines = benchmark.headlines(list(summary.metrics))
    page.add(part("tiles", [_tile(info, summary.metrics[info.name]) for info in headlines]))
    add_examples(page, run, find)
    infos = [benchmark.metric_info(name) for name in summary.metrics]
    page.section("All metrics").table(metric_table(infos, summary.metrics))
    if summary.official:
        rows: list[list[Cell]] = [
            [name, "undefined" if value is None else f"{value:g}"] for name, value in summary.official.items()
        ]
        printed = Table([Column("metric"), Column("printed")], rows)
        page.section("As the official program prints them").table(printed)
    record = {"scorer": summary.scorer, **run.results["config"]}
    return page.section("Record").record(record, "everything the metrics depend on")


def _lead(run: Scored) -> str:
    summary, judge = run.summary, run.summary.scorer.get("judge") or {}
    lead = f"{run.size}; 95% intervals by image bootstrap."
    if "model" in judge:
        lead += f" Rated by {judge['model']}."
    if unparsed := summary.scorer.get("unparsed"):
        lead += f" {unparsed:,} replies could not be read."
    return lead


def _tile(info: MetricInfo, metric: Estimate) -> tuple[str, str, str]:
    value, interval = _column(info).show(metric)
    unit = f" {info.unit}" if info.unit and metric.value is not None else ""
    return info.title, f"{value}{unit}", interval or metric.reason or ""


def _column(info: MetricInfo) -> Column:
    return Column(info.title, info.direction, info.digits)


def metric_table(infos: Sequence[MetricInfo], metrics: Mapping[str, Estimate], caption: str = "") -> Table:
    """Return some metrics of one run, one row for each, with the interval or the reason why there is none."""
    rows: list[list[Cell]] = []
    for info in infos:
        value, interval = _column(info).show(metrics[info.name])
        rows.append([_column(info).heading, value, interval or metrics[info.name].reason or ""])
    return Table([Column("metric"), Column("value"), Column("95% interval")], rows, caption=caption)


def comparison_page(pair: Difference, find: FindImage = lambda _: None) -> Page:
    """Return the page of two compared runs: paired differences, what was removed and introduced, both texts side by side."""
    first, second = pair.titles
    lead = f"{len(pair.first.items):,} responses of each run to the same records."
    title = f"{pair.benchmark.title}: {second} against {first}"
    page = Page(title, lead=lead, footer="Written by reweigh eval diff.")
    page.section("Difference").table(difference_table(pair))
    drawn = {info.title: found for info in _headlines(pair) if (found := pair.figures[info.name]).bounded}
    page.intervals(drawn, f"{second} minus {first}.", zero=True, digits=2)
    if (counted := mention_table(pair)) is not None:
        page.section("What changed").table(counted).add(legend())
    sides = list(zip(pair.titles, (pair.first, pair.second), strict=True))
    page.add(*(example(one.id, sides, find(one.id), _summary(one)) for one in _clearest(pair.changes)))
    return page


def difference_table(pair: Difference) -> Table:
    """Return the headline metrics before, after, and their difference with its paired interval."""
    columns = [Column("metric"), *(Column(title, digits=2) for title in pair.titles)]
    columns += [Column("difference", digits=2, signed=True), Column("")]
    rows: list[list[Cell]] = []
    for info in _headlines(pair):
        change = pair.figures[info.name]
        both = (run.summary.metrics[info.name].value for run in (pair.first, pair.second))
        rows.append([info.title, *both, change, _verdict(info.direction, change)])
    counted = f"{pair.benchmark.title}: {len(pair.first.items):,} items"
    few = {one.reason for one in pair.figures.values() if one.value is not None and one.reason}
    warned = [f"{one[0].upper()}{one[1:]} to claim a difference." for one in few]
    return Table(
        columns, rows, caption=" ".join([f"{counted}; paired image-bootstrap 95% intervals.", *warned])
    )


def _headlines(difference: Difference) -> list[MetricInfo]:
    return difference.benchmark.headlines(list(difference.figures))


def _verdict(better: Direction | None, change: Estimate) -> str:
    """Whether a difference is beyond chance, and for the better or the worse."""
    if better is None or change.value is None or not change.bounded:
        return ""
    if change.reason is not None:
        return "too few"
    if not change.beyond_chance:
        return "within chance"
    return "better" if (change.value < 0) == (better == "lower") else "worse"


def mention_table(difference: Difference) -> Table | None:
    """Return removed, introduced and kept hallucinated mentions, or wrong answers to yes-no questions."""
    if not difference.mentions:
        return None
    kinds = {
        word for change in difference.changes for word in (*change.removed, *change.introduced, *change.kept)
    }
    names = ("removed", "introduced", "kept")
    row = [difference.mentions[name] for name in names]
    columns = [*(Column(name, digits=0) for name in names), Column("in all")]
    counted = Column("wrong answers" if kinds == {WRONG} else "hallucinated mentions")
    return Table([counted, *columns], [["occurrences", *row, _net_in_words(difference.mentions["net"])]])


def _net_in_words(net: Estimate) -> str:
    """Say removed minus introduced: "15 fewer [9, 21]" or "3 more [-1, 7]" tells which run is better."""
    value = round(net.value or 0)
    more = value < 0
    words = f"{abs(value)} {'more' if more else 'fewer'}" if value else "as many"
    if net.low is None or net.high is None:
        return words
    low, high = (-net.high, -net.low) if more else (net.low, net.high)
    return f"{words} [{low:.0f}, {high:.0f}]"


def _clearest(changes: Sequence[Change]) -> list[Change]:
    """Return the largest changes for the better, then the largest for the worse."""
    moved = [change for change in changes if change.removed or change.introduced]
    ranked = sorted(moved, key=lambda change: (-change.net, str(change.id)))
    better = [change for change in ranked if change.net > 0][: EXAMPLES * 2 // 3]
    worse = [change for change in reversed(ranked) if change not in better][: EXAMPLES - len(better)]
    return [*better, *worse]


def _summary(change: Change) -> str:
    parts = []
    for name in ("removed", "introduced", "kept"):
        objects: Mapping[str, int] = getattr(change, name)
        if objects:
            listed = ", ".join(
                f"{word} ×{count}" if count > 1 else word for word, count in sorted(objects.items())
            )
            parts.append(f"{name}: {listed}")
    return " · ".join(parts)
