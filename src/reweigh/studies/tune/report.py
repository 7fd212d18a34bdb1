"""What a search found, as a table, a file and a page with the figures drawn over beta."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.report.html import element, figure, page, section
from reweigh.report.plots import line_plot
from reweigh.report.tables import Cell, Column, Table
from reweigh.studies.tune.search import FIGURES, Found, Point, edge

DRAWN = ("chair_i", "f1")


def build_table(found: Found, caption: str) -> Table:
    """Layer by beta with figures, gain over the base and verdict."""
    columns = [Column("layer"), Column("beta", digits=3)]
    described = [find_metric(METRICS, name) for name in FIGURES]
    columns += [Column(info.title, info.direction, 2) for info in described]
    columns += [Column("gain %", digits=1, signed=True), Column("")]
    rows: list[list[Cell]] = [["base", 0.0, *asdict(found.base).values(), None, ""]]
    for point in found.points:
        gain = None if point.gain is None else 100 * point.gain
        figures = asdict(point.quality).values()
        rows.append([str(point.layer), point.beta, *figures, gain, _verdict(point, found.chosen)])
    return Table(columns, rows, caption)


def _verdict(point: Point, chosen: Point | None) -> str:
    if point == chosen:
        return "chosen"
    return "" if point.eligible else "not eligible"


def build_json(found: Found, chosen_on: Mapping[str, Any]) -> dict[str, Any]:
    """The operating point with all it was chosen from; without one, layer is None and beta 0, the base model."""
    return {
        "layer": None if found.chosen is None else found.chosen.layer,
        "beta": 0.0 if found.chosen is None else found.chosen.beta,
        "edge": edge(found),
        "base": asdict(found.base),
        "grid": [point.to_json() for point in found.points],
        "chosen_on": dict(chosen_on),
    }


def build_page(found: Found, table: Table, lead: str, advice: str) -> str:
    """A page that needs no other file."""
    plots = []
    for name in DRAWN:
        lines = {
            f"layer {layer}": [
                (point.beta, value)
                for point in found.points
                if point.layer == layer and (value := getattr(point.quality, name)) is not None
            ]
            for layer in dict.fromkeys(point.layer for point in found.points)
        }
        info = find_metric(METRICS, name)
        drawing = line_plot(lines, across="beta", up=info.title, level=("base", getattr(found.base, name)))
        plots.append(figure(drawing, f"{info.title} over beta; {info.direction} is better."))
    return page(
        "Operating point of ReWEIGH",
        element("p", advice),
        section("Grid", table.html()),
        section("Over beta", *plots),
        lead=lead,
        footer="Written by reweigh tune.",
    )
