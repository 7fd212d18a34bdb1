"""What a search found, for people and programs: a table with intervals, a page with metrics over beta, and advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.estimate import Estimate
from reweigh.experiments.compare.report import Comparison, MethodRow, figure_column
from reweigh.experiments.experiment import Files
from reweigh.experiments.tune.search import BASE, FIGURES, GAIN, Point, Tuned, Where, edge
from reweigh.files.outputs import claim, write_sealed_output
from reweigh.results.charts import lines
from reweigh.results.frame import AGAINST, Frame, Key, Row
from reweigh.results.page import Page
from reweigh.tables.point import POINT, read_point_page

DECIDING = 100
"""A search on fewer records warns that they are too few."""
DRAWN = ("chair_i", "f1")
FILES = Files(("tuning.md", "tuning.tex", "report.html"), POINT)
INFO = {name: find_metric(METRICS, name) for name in FIGURES}
EXPLAINED = (
    "Gain is the mean of the four relative improvements over the base, in percent; a point is not eligible if its F1 "
    "falls by more than the bound."
)
UNLABELLED = "Experimental: a mention that the verifier denies counts as hallucinated; no labels are used."


def claim_files(out: Path, *, record: Path | None = None) -> None:
    """Refuse files of others under the names that tuning writes, in its folder and in that of the table."""
    FILES.claim(out)
    if record is not None:
        claim([record / POINT])


@dataclass(frozen=True)
class TuningReport:
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
        said = f"{self.model}, {on['records']:,} records of {on['benchmark']}, F1 may fall by {on['bound']:g} points."
        return said if self.tuned.verified is None else f"{said} {UNLABELLED}"

    @cached_property
    def comparison(self) -> Comparison:
        """Base and points under figures with intervals and paired differences."""
        group = "by labels" if self.tuned.verified is None else "by the verifier"
        columns = [figure_column(group, INFO[name].title, INFO[name].direction) for name in FIGURES]
        columns.append(figure_column("all four", "gain %", "higher", digits=1))
        base = self.tuned.scored[BASE].summary.metrics
        rows = [MethodRow("base", [*(base[name] for name in FIGURES), None])]
        for point in self.tuned.found.points:
            metrics = self.tuned.scored[_key(point)].summary.metrics
            changes = self.tuned.differences[_key(point)]
            cells = [*(metrics[name] for name in FIGURES), Estimate(changes[GAIN].value)]
            differences = [changes[name] for name in (*FIGURES, GAIN)]
            state = (
                ", chosen" if point == self.tuned.found.chosen else "" if point.eligible else ", not eligible"
            )
            rows.append(MethodRow(f"{_named(point)}{state}", cells, differences))
        notes = ["Brackets are 95% image-bootstrap intervals.", EXPLAINED]
        return Comparison(self.lead, columns, rows, notes, kind="point")

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

    def _intervals(self, key: Where) -> dict[str, list[float | None]]:
        metrics = self.tuned.scored[key].summary.metrics
        return {name: [metrics[name].low, metrics[name].high] for name in FIGURES}

    def advice(self) -> list[str]:
        """What the choice changes, how to use it, and whether verifier and grid can be trusted."""
        found, verified = self.tuned.found, self.tuned.verified
        said = [] if verified is None else verified.trust.in_words().split("\n")
        if verified is not None and verified.trust.refusal() is not None:
            return said
        if found.chosen is None:
            none = "No point improves on the base within the bound: use the base model, or calibrate on more images."
            return [*said, none]
        said.append(f"{_named(found.chosen)} against the base: {self._changes(found.chosen)}")
        if (doubt := self.doubt()) is not None:
            return [*said, f"not recommended: {doubt}"]
        if self.chosen_on["records"] < DECIDING:
            said.append(f"fewer than {DECIDING} records are too few to decide: look at the intervals")
        named = "" if self.table is None else f" --table {self.table}"
        options = f"--layer {found.chosen.layer} --beta {found.chosen.beta:g}"
        said.append(f"use it: reweigh describe {self.model} IMAGE{named} {options}")
        if (end := edge(found)) is not None:
            said.append(
                f"the chosen beta is the {end} that was tried: a better one may lie beyond it; widen --betas"
            )
        return said

    def doubt(self) -> str | None:
        """Why the chosen point should not be used or recorded, if so."""
        chosen = self.tuned.found.chosen
        if chosen is None:
            return "no point improves on the base"
        if not self.tuned.differences[_key(chosen)][GAIN].beyond_chance:
            return "the interval of its gain includes zero: tune on more records"
        return None

    def kept_point(self, folder: Path) -> str | None:
        """Why this search may not replace what is recorded in a table's folder, if so."""
        if (doubt := self.doubt()) is not None:
            return doubt
        there = read_point_page(folder)
        before = 0 if there is None else there["chosen_on"]["records"]
        if before > self.chosen_on["records"]:
            return f"the point recorded there was chosen on more records ({before:,})"
        return None

    def _changes(self, point: Point) -> str:
        found = self.tuned.differences[_key(point)]
        told = [f"{INFO[name].title} {found[name].text(2, signed=True)}" for name in FIGURES]
        return ", ".join([*told, f"gain {found[GAIN].text(1, signed=True)} %"])

    def page(self) -> Page:
        """The advice, the tables, and CHAIR_I and F1 drawn over beta."""
        made = Page("Operating point of ReWEIGH", lead=self.lead, footer="Written by reweigh tune.")
        self.comparison.add_to(made.text(*self.advice())).section("Over beta")
        for name in DRAWN:
            info = INFO[name]
            words = f"{info.title} over beta, with 95% intervals; {info.direction} is better."
            made.chart(partial(self._draw, name), words, height=3.0)
        return made

    def _draw(self, name: str, panel: Any, narrow: bool) -> None:
        found = self.tuned.found
        series = {
            f"layer {layer}": [
                (point.beta, self.tuned.scored[_key(point)].summary.metrics[name])
                for point in found.points
                if point.layer == layer
            ]
            for layer in dict.fromkeys(point.layer for point in found.points)
        }
        level = ("base", getattr(found.base, name))
        chosen = found.chosen
        marked = None if chosen is None else (chosen.beta, getattr(chosen.quality, name))
        lines(panel, series, across="beta", up=INFO[name].title, level=level, marked=marked)

    def write(self, out: Path, *, record: Path | None = None) -> list[Path]:
        """Write the point, the page and the frame; the point also into ``record``, a table's folder."""
        point = self.point()
        written = FILES.write(out, self.page(), point, self.frame())
        return written if record is None else [*written, write_sealed_output(record / POINT, point)]

    def frame(self) -> Frame:
        """Every figure of the base and of every point, and the paired differences to the base."""
        found = []
        for key, run in self.tuned.scored.items():
            keys: dict[str, Key] = {"benchmark": self.chosen_on["benchmark"], "layer": key[0], "beta": key[1]}
            changes = self.tuned.differences.get(key, {})
            for against, numbers in ((None, run.summary.metrics), ("base", changes)):
                found += [
                    Row({**keys, "figure": name, AGAINST: against}, one) for name, one in numbers.items()
                ]
        chosen = self.tuned.found.chosen
        point = None if chosen is None else {"layer": chosen.layer, "beta": chosen.beta}
        return Frame(found, {"model": self.model, **self.chosen_on, "reference": "base", "chosen": point})


def _key(point: Point) -> Where:
    return point.layer, point.beta


def _named(point: Point) -> str:
    return f"layer {point.layer}, beta {point.beta:g}"
