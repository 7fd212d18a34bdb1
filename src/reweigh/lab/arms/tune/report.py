"""What a search found, for people and programs: a table with intervals, a page with metrics over beta, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.lab.arms.tune.search import BASE, FIGURES, GAIN, Metrics, Point, Tuned
from reweigh.lab.enough import too_few
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.tasks.base import find_metric
from reweigh.lab.tasks.chair.metrics import METRICS
from reweigh.lab.views.charts import lines
from reweigh.lab.views.contrast import Contrast, Keys
from reweigh.lab.views.page import Page
from reweigh.lab.views.report import Report
from reweigh.lab.views.table import Column
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import recorded_point

DRAWN = ("chair_i", "f1")
POINT = "operating_point.json"
FILES = ("tuning.md", "tuning.tex", "report.html", POINT)
INFO = {name: find_metric(METRICS, name) for name in FIGURES}
EXPLAINED = (
    "Gain is the mean of the four relative improvements over the base, in percent; a point is not eligible if its F1 "
    "falls by more than the bound."
)


@dataclass(frozen=True)
class Search:
    """A finished search and what it was made on.

    Attributes:
        tuned: The search.
        model: Name of the model.
        chosen_on: Records, rule, bound and tables, as the operating point keeps them.
        table: The table that was named, for the command that uses the point.
    """

    tuned: Tuned
    model: str
    chosen_on: Mapping[str, Any]
    table: str | None = None

    @property
    def lead(self) -> str:
        """The model and the records in one line."""
        on = self.chosen_on
        return f"{self.model}, {on['records']:,} records of {on['benchmark']}, F1 may fall by {on['bound']:g} points."

    @cached_property
    def contrast(self) -> Contrast:
        """The judged figures and the gain of the base and of every point."""
        columns: list[tuple[Column, Keys]] = [
            (Column(info.title, info.direction, 2, group="by labels"), {"figure": name})
            for name, info in INFO.items()
        ]
        columns.append((Column("gain %", "higher", group="all four"), {"figure": GAIN}))
        benchmark = self.chosen_on["benchmark"]
        rows: list[tuple[str, Keys]] = [("base", {"benchmark": benchmark, "layer": BASE[0], "beta": BASE[1]})]
        gains = []
        for point in self.tuned.points:
            state = "" if point.eligible else ", not eligible"
            state = ", chosen" if point == self.tuned.chosen else state
            keys: Keys = {"benchmark": benchmark, **point.setting}
            rows.append((f"{_named(point)}{state}", keys))
            gained = Estimate(self.tuned.change(point, GAIN).value)
            gains.append(Row({**keys, "figure": GAIN, AGAINST: None}, gained))
        return Contrast(Frame([*self.tuned.frame, *gains]), rows, columns, kind="point")

    def point(self) -> dict[str, Any]:
        """Return the operating point with the whole grid; if none was chosen, layer is None and beta 0, the base model."""
        tuned = self.tuned
        chosen = {"layer": None, "beta": 0.0} if tuned.chosen is None else tuned.chosen.setting
        base = {name: tuned.base[name].value for name in FIGURES}
        return {
            **chosen,
            "edge": tuned.edge(),
            "base": {**base, "intervals": _intervals(tuned.base)},
            "grid": [
                point.to_json()
                | {
                    "intervals": _intervals(point.metrics),
                    "difference": {name: one.to_json() for name, one in self._differences(point).items()},
                }
                for point in tuned.points
            ],
            "chosen_on": dict(self.chosen_on),
        }

    def _differences(self, point: Point) -> dict[str, Estimate]:
        return {name: self.tuned.change(point, name) for name in (*FIGURES, GAIN)}

    def advice(self) -> list[str]:
        """Say what the choice changes, how to use it, and whether the grid was wide enough."""
        chosen = self.tuned.chosen
        if chosen is None:
            return [
                "No point improves on the base within the bound: use the base model, or calibrate on more images."
            ]
        said = [f"{_named(chosen)} against the base: {self._changes(chosen)}"]
        if (doubt := self.doubt()) is not None:
            return [*said, f"not recommended: {doubt}"]
        if (few := too_few(self.chosen_on["records"])) is not None:
            said.append(f"{few}: look at the intervals")
        named = "" if self.table is None else f" --table {self.table}"
        layer, beta = chosen.where
        said.append(f"use it: reweigh describe {self.model} IMAGE{named} --layer {layer} --beta {beta:g}")
        if (end := self.tuned.edge()) is not None:
            said.append(
                f"the chosen beta is the {end} that was tried: a better one may lie beyond it; widen --betas"
            )
        return said

    def doubt(self) -> str | None:
        """Return why the chosen point should not be used or recorded, if so."""
        chosen = self.tuned.chosen
        if chosen is None:
            return "no point improves on the base"
        if not self._differences(chosen)[GAIN].beyond_chance:
            return "the interval of its gain includes zero: tune on more records"
        return None

    def operating_point(self) -> OperatingPoint:
        """Return the chosen point as a table records it."""
        if self.tuned.chosen is None:
            raise InputError("no point was chosen")
        layer, beta = self.tuned.chosen.where
        on = self.chosen_on
        source = f"tuned on {on['records']:,} records of {on['benchmark']}, recorded with the table"
        return OperatingPoint(layer, beta, source, on["records"], on.get("pictures", {}))

    def kept_point(self, folder: Path) -> str | None:
        """Return why this search may not replace what is recorded in a table's folder, if so."""
        if (doubt := self.doubt()) is not None:
            return doubt
        there = recorded_point(folder)
        before = 0 if there is None else there.records
        if before > self.chosen_on["records"]:
            return f"the point recorded there was chosen on more records ({before:,})"
        return None

    def _changes(self, point: Point) -> str:
        found = self._differences(point)
        told = [f"{INFO[name].title} {found[name].text(2, signed=True)}" for name in FIGURES]
        return ", ".join([*told, f"gain {found[GAIN].text(1, signed=True)} %"])

    def page(self) -> Page:
        """Return the advice, the tables, and CHAIR_I and F1 drawn over beta."""
        page = Page("Operating point of ReWEIGH", lead=self.lead, footer="Written by reweigh tune.")
        self.contrast.add_to(page.text(*self.advice()), EXPLAINED).section("Over beta")
        for name in DRAWN:
            words = f"{INFO[name].title} over beta, with 95% intervals; {INFO[name].direction} is better."
            page.chart(partial(self._draw, name), words, height=3.0)
        return page

    def _draw(self, name: str, panel: Any, *, narrow: bool) -> None:
        series: dict[str, list[tuple[float, Estimate]]] = {}
        for point in self.tuned.points:
            layer, beta = point.where
            series.setdefault(f"layer {layer}", []).append((beta, point.metrics[name]))
        chosen = self.tuned.chosen
        marked = None if chosen is None else (chosen.where[1], chosen.metrics[name].value)
        level = ("base", self.tuned.base[name].value)
        lines(panel, series, across="beta", up=INFO[name].title, level=level, marked=marked)

    def report(self) -> Report:
        """Return the page, the point and the frame, which says what the search was made on."""
        chosen = self.tuned.chosen
        point = None if chosen is None else dict(chosen.setting)
        about = {"model": self.model, **self.chosen_on, "reference": "base", "chosen": point}
        return Report(FILES, self.page(), self.point(), Frame(self.tuned.frame.rows, about))


def _named(point: Point) -> str:
    layer, beta = point.where
    return f"layer {layer}, beta {beta:g}"


def _intervals(metrics: Metrics) -> dict[str, list[float | None]]:
    return {name: [metrics[name].low, metrics[name].high] for name in FIGURES}
