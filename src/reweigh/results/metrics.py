"""Metrics as tiles, table cells and tables, titled and directed as their benchmark describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reweigh.benchmarks.base import MetricInfo, find_benchmark
from reweigh.estimate import Estimate
from reweigh.results.html import Html, tile
from reweigh.results.table import Cell, Column, Table


def column(info: MetricInfo) -> Column:
    """The column of a metric."""
    return Column(info.title, info.direction, info.digits)


def summary_table(
    benchmark: str, rows: Sequence[tuple[str, Mapping[str, Estimate]]], caption: str = ""
) -> Table:
    """The headline figures of one or several runs, one row for each run."""
    headlines = find_benchmark(benchmark).headlines(list(rows[0][1]))
    columns = [Column("run"), *map(column, headlines)]
    cells: list[list[Cell]] = [
        [title, *(metrics[info.name] for info in headlines)] for title, metrics in rows
    ]
    return Table(columns, cells, caption=caption)


def figure_table(benchmark: str, metrics: Mapping[str, Estimate], caption: str = "") -> Table:
    """The headline figures of one run, one row for each figure."""
    rows: list[list[Cell]] = []
    for info in find_benchmark(benchmark).headlines(list(metrics)):
        metric = metrics[info.name]
        value, interval = column(info).show(metric)
        rows.append([column(info).heading, value, interval or metric.reason or ""])
    return Table([Column("figure"), Column("value"), Column("95% interval")], rows, caption=caption)


def full_table(benchmark: str, metrics: Mapping[str, Estimate]) -> Table:
    """All figures of one run with the direction in which each is better."""
    found = find_benchmark(benchmark)
    rows: list[list[Cell]] = []
    for name, metric in metrics.items():
        info = found.metric_info(name)
        value: Cell = metric
        if not metric.bounded:
            value = column(info).number(metric.value)
        better = f"{info.direction} is better" if info.direction else ""
        rows.append([info.title, value, metric.reason or better])
    return Table([Column("figure"), Column("value", digits=2), Column("note")], rows)


def metric_tile(info: MetricInfo, metric: Estimate) -> Html:
    """A figure as a large number with its unit and interval."""
    if metric.value is None:
        return tile(info.title, "–", metric.reason or "")
    interval = ""
    if metric.low is not None and metric.high is not None:
        interval = f"[{metric.low:.{info.digits}f}, {metric.high:.{info.digits}f}]"
    unit = f" {info.unit}" if info.unit else ""
    return tile(info.title, f"{metric.value:.{info.digits}f}{unit}", interval)
