"""What a search found, for people and programs: a table with intervals, a page with figures over beta, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Metric, find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.experiments.compare import render
from reweigh.experiments.compare.page import tables
from reweigh.experiments.compare.table import Comparison, Figure, Row
from reweigh.experiments.tune.labelfree import against_report
from reweigh.experiments.tune.labelfree.against import Against
from reweigh.experiments.tune.search import BASE, FIGURES, Key, Point, edge
from reweigh.experiments.tune.tuned import GAIN, Tuned
from reweigh.files.artifacts import write_json, write_text
from reweigh.results.html import Html, at_every_width, element, figure, page, section
from reweigh.results.plots import line_plot
from reweigh.tables.point import POINT

DRAWN = ("chair_i", "f1")
FILES = (POINT, "tuning.md", "tuning.tex", "report.html")
INFO = {name: find_metric(METRICS, name) for name in FIGURES}
EXPLAINED = (
    "gain: mean of the four relative improvements over the base, in percent; not eligible: F1 falls by more than the "
    "bound."
)
UNLABELLED = "Experimental: a verifier's denial stands for a hallucinated mention; the search reads no label."
JUDGED = "The labels judge its choice, and those of others."


@dataclass(frozen=True)
class Report:
    """A finished search and what it was made on.

    Attributes:
        tuned: The search.
        model: Name of the model.
        chosen_on: Records, rule, bound and tables, as the operating point keeps them.
        table: The table that was named, for the command that uses the point.
        held: A choice without labels held against the labels', if that was asked for.
    """

    tuned: Tuned
    model: str
    chosen_on: Mapping[str, Any]
    table: str | None = None
    held: Against | None = None

    @property
    def lead(self) -> str:
        """The model and the records in one line."""
        on = self.chosen_on
        said = f"{self.model}, {on['records']:,} records of {on['benchmark']}, F1 may fall by {on['bound']:g} points."
        return said if self.tuned.verified is None else f"{said} {UNLABELLED}"

    @cached_property
    def comparison(self) -> Comparison:
        """Base and points under figures with intervals and paired differences."""
        group = "by labels" if self.tuned.verified is None else "by the verifier"
        figures = [Figure(group, INFO[name].title, INFO[name].direction) for name in FIGURES]
        figures.append(Figure("all four", "gain %", "higher", digits=1))
        base = self.tuned.scored[BASE].summary.metrics
        rows = [Row("base", [*(base[name].value for name in FIGURES), None], intervals=_of(base))]
        for point in self.tuned.found.points:
            metrics = self.tuned.scored[_key(point)].summary.metrics
            changes = self.tuned.differences[_key(point)]
            values = [*(metrics[name].value for name in FIGURES), changes[GAIN].value]
            differences = [*_of(changes), changes[GAIN]]
            rows.append(Row(self._title(point), values, intervals=_of(metrics), differences=differences))
        notes = ["Brackets are 95% image-bootstrap intervals.", EXPLAINED]
        return Comparison(self.lead, figures, rows, notes, kind="point")

    def _title(self, point: Point) -> str:
        said = "" if point.eligible else ", not eligible"
        return f"{_named(point)}{', chosen' if point == self.tuned.found.chosen else said}"

    def to_json(self) -> dict[str, Any]:
        """All of it for a program."""
        if self.held is None:
            return self.point()
        return self.point() | {"against_labels": against_report.to_json(self.held, {})}

    def point(self) -> dict[str, Any]:
        """The operating point with all it was chosen from; without one, layer is None and beta 0, the base model."""
        found = self.tuned.found
        on = dict(self.chosen_on)
        if self.tuned.verified is not None:
            verified = self.tuned.verified
            on["verifier"] = {"who": dict(verified.who), **verified.trust.to_json()}
        return {
            "layer": None if found.chosen is None else found.chosen.layer,
            "beta": 0.0 if found.chosen is None else found.chosen.beta,
            "edge": edge(found),
            "base": asdict(found.base) | {"intervals": self._intervals(BASE)},
            "grid": [
                point.to_json()
                | {
                    "intervals": self._intervals(_key(point)),
                    "difference": {
                        name: metric.to_json() for name, metric in self.tuned.differences[_key(point)].items()
                    },
                }
                for point in found.points
            ],
            "chosen_on": on,
        }

    def _intervals(self, key: Key) -> dict[str, list[float | None]]:
        metrics = self.tuned.scored[key].summary.metrics
        return {name: [metrics[name].low, metrics[name].high] for name in FIGURES}

    def advice(self) -> list[str]:
        """What the choice changes, how to use it, and whether verifier and grid were good enough to tell."""
        found, verified = self.tuned.found, self.tuned.verified
        said = [] if verified is None else verified.trust.in_words().split("\n")
        if verified is not None and verified.trust.refusal() is not None:
            return said
        if found.chosen is None:
            none = "No point improves on the base within the bound: use the base model, or calibrate on more images."
            return [*said, none]
        said.append(f"{_named(found.chosen)} against the base: {self._changes(found.chosen)}")
        named = "" if self.table is None else f" --table {self.table}"
        options = f"--layer {found.chosen.layer} --beta {found.chosen.beta:g}"
        said.append(f"use it: reweigh describe {self.model} IMAGE{named} {options}")
        if (end := edge(found)) is not None:
            said.append(
                f"the chosen beta is the {end} that was tried: a better one may lie beyond it; widen --betas"
            )
        return said

    def _changes(self, point: Point) -> str:
        found = self.tuned.differences[_key(point)]
        told = [f"{INFO[name].title} {render.change(found[name], 2)}" for name in FIGURES]
        return ", ".join([*told, f"gain {render.change(found[GAIN], 1)} %"])

    def page(self) -> str:
        """A page that needs no other file."""
        return page(
            "Operating point of ReWEIGH",
            *(element("p", line) for line in self.advice()),
            section("Grid", *tables(self.comparison)),
            section("Over beta", *(self._plot(name) for name in DRAWN)),
            lead=self.lead,
            footer="Written by reweigh tune.",
        )

    def _plot(self, name: str) -> Html:
        found, info = self.tuned.found, INFO[name]
        lines = {
            f"layer {layer}": [
                (point.beta, value)
                for point in found.points
                if point.layer == layer and (value := getattr(point.quality, name)) is not None
            ]
            for layer in dict.fromkeys(point.layer for point in found.points)
        }
        level = ("base", getattr(found.base, name))
        drawing = at_every_width(
            lambda width: line_plot(lines, across="beta", up=info.title, level=level, width=width)
        )
        return figure(drawing, f"{info.title} over beta; {info.direction} is better.")

    def write(self, out: Path, *, record: Path | None = None) -> list[Path]:
        """Write the point, the tables and the page; the point also into ``record``, a table's folder."""
        point = self.point()
        texts = (render.markdown(self.comparison), render.latex(self.comparison), self.page())
        write_json(out / FILES[0], point)
        for name, text in zip(FILES[1:], texts, strict=True):
            write_text(out / name, text)
        if record is not None:
            write_json(record / POINT, point)
        written = [out / name for name in FILES]
        if self.held is not None:
            written += against_report.write(self.held, out, f"{self.lead} {JUDGED}", self.chosen_on)
        return written


def _key(point: Point) -> Key:
    return point.layer, point.beta


def _named(point: Point) -> str:
    return f"layer {point.layer}, beta {point.beta:g}"


def _of(metrics: Mapping[str, Metric]) -> list[Metric | None]:
    return [metrics[name] for name in FIGURES]
