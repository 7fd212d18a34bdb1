"""The paper's numbers, the commands that measure them, and whether orders agree.

``published.json`` holds the numbers: for each label the title, what they were measured on, the metrics with the direction
that is better, which orders to compare, the commands that measure them unless a study does, how the table is laid out,
and rows of model, name and one value per metric (a number, ``[value, low, high]`` or null). Sizes of different models are
not comparable; which of two is larger is. Entries that the paper shows as equal are not compared. A test parses every
command with the real command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from reweigh.files.artifacts import read_json
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.analyses import STUDIES
from reweigh.lab.paper.study import Entries, Entry

FILE = Path(__file__).with_name("published.json")
REFERENCE = "LLaVA-1.5-7B"
"""The paper's main model, which a model that is not the paper's is compared with."""
SIGNS = {1: ">", 0: "=", -1: "<"}

FIRST = {
    "cost": "reweigh compare MODEL -b chair -m base,reweigh --table TABLE -o study/comparison",
    "grid": "reweigh tune MODEL -b chair --table TABLE -o study/tuning",
}
"""What a study reads and does not run itself."""


@dataclass(frozen=True)
class Order:
    """Two entries, or one and zero, and which is larger: in the paper and as measured."""

    first: Entry
    second: Entry | None
    published: int
    measured: int

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return self.published == self.measured

    def __str__(self) -> str:
        first, second = self.first, self.second
        paper, here = SIGNS[self.published], SIGNS[self.measured]
        if second is None:
            return f"{first.row}, {first.metric}: {paper} 0 in the paper, {here} 0 here"
        if first.row == second.row:
            one, other, where = first.metric, second.metric, first.row
        else:
            one, other, where = first.row, second.row, first.metric
        return f"{where}: {one} {paper} {other} in the paper, {one} {here} {other} here"


@dataclass(frozen=True)
class Published:
    """One table or figure of the paper.

    Attributes:
        label: Its label in the paper's source.
        title: What it shows.
        on: What was measured on.
        metrics: Its metrics, each with the direction that is better, if one is.
        compare: Orders: metrics whose ``rows`` are ordered, pairs of ``columns`` ordered within a row, metrics whose
            ``sign`` counts.
        values: The numbers of each model.
        run: The commands that measure them, in their order; empty if there is nothing to measure, or nothing does.
        not_measured: Why no command measures its numbers, if so.
        layout: Its rows and columns, where they are not names and metrics.
    """

    label: str
    title: str
    on: str
    metrics: Mapping[str, Literal["lower", "higher"] | None]
    compare: Mapping[str, Sequence[Any]]
    values: Mapping[str, Entries]
    run: Sequence[str] = ()
    not_measured: str | None = None
    layout: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Table, figure, algorithm or text."""
        kinds = {"tab": "table", "fig": "figure", "alg": "algorithm", "text": "text"}
        return kinds[self.label.partition(":")[0]]

    @property
    def rows(self) -> list[str]:
        """Names of the rows, in the paper's order."""
        return list(dict.fromkeys(entry.row for values in self.values.values() for entry in values))

    def reference(self, model: str) -> str | None:
        """Return the paper's model to compare a measured one with: itself, else the main one, else the first."""
        return next((name for name in (model, REFERENCE, *self.values) if name in self.values), None)

    def orders(self, paper: Entries, measured: Entries) -> list[Order]:
        """Make every comparison that both sets of numbers allow."""
        found = []
        for first, second in self._pairs():
            entries = [entry for entry in (first, second) if entry is not None]
            if all(_has(values, entry) for entry in entries for values in (paper, measured)):
                said, seen = (_sign(values, first, second) for values in (paper, measured))
                if said:
                    found.append(Order(first, second, said, seen))
        return found

    def _pairs(self) -> Iterator[tuple[Entry, Entry | None]]:
        for metric in self.compare.get("rows", ()):
            for one, other in combinations(self.rows, 2):
                yield Entry(one, metric), Entry(other, metric)
        for one, other in self.compare.get("columns", ()):
            for row in self.rows:
                yield Entry(row, one), Entry(row, other)
        for metric in self.compare.get("sign", ()):
            for row in self.rows:
                yield Entry(row, metric), None


def _has(values: Entries, entry: Entry) -> bool:
    return entry in values and values[entry].value is not None


def _sign(values: Entries, first: Entry, second: Entry | None) -> int:
    """Return 1 if the first is larger, -1 if it is smaller, 0 if they are equal."""
    difference = values[first].number - (0.0 if second is None else values[second].number)
    return (difference > 0) - (difference < 0)


@cache
def published() -> dict[str, Published]:
    """Read all tables and figures by label, in the paper's order."""
    return {label: _published(label, page) for label, page in read_json(FILE).items()}


def _published(label: str, page: Mapping[str, Any]) -> Published:
    values: dict[str, dict[Entry, Estimate]] = {}
    for model, row, *numbers in page["rows"]:
        for metric, number in zip(page["metrics"], numbers, strict=True):
            if number is not None:
                found = Estimate(*number) if isinstance(number, list) else Estimate(number)
                values.setdefault(model, {})[Entry(row, metric)] = found
    about = {name: page[name] for name in ("title", "on", "metrics", "compare")}
    about["layout"] = page.get("layout", {})
    run = page.get("run") or study_commands(label)
    return Published(label, **about, values=values, run=run, not_measured=page.get("not_measured"))


def study_commands(label: str) -> list[str]:
    """Return the commands of the study that fills a table or figure, if one does."""
    for name in STUDIES:
        if label in STUDIES[name].labels:
            study = f"reweigh study {name} MODEL -b chair --table TABLE --calibration IMAGES -o study"
            return [FIRST[name], study] if name in FIRST else [study]
    return []
