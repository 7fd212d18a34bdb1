"""The published numbers of every table and figure, as data under the label that the paper gives it.

``published.json`` holds them: for each label the title, what they were measured on, the metrics with the direction that is
better, which orderings to compare, and rows of model, name and one value for each metric (a number, ``[value, low,
high]``, or null).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from reweigh.estimate import Estimate
from reweigh.files.artifacts import read_json

FILE = Path(__file__).with_name("published.json")
REFERENCE = "LLaVA-1.5-7B"
"""The paper's main model, which stands for it where a measured model is none of the paper's."""


class Entry(NamedTuple):
    """Where a number stands in a table: the name of its row, and its metric."""

    row: str
    metric: str


Values = Mapping[Entry, float | Estimate]


@dataclass(frozen=True)
class Published:
    """One table or figure of the paper.

    Attributes:
        label: Its label in the paper's source.
        title: What it shows.
        on: What was measured on.
        metrics: Its metrics, each with the direction that is better, if one is.
        compare: Orderings: metrics whose ``rows`` are ordered, pairs of ``columns`` ordered within a row, metrics whose
            ``sign`` counts.
        values: The numbers of each model.
    """

    label: str
    title: str
    on: str
    metrics: Mapping[str, Literal["lower", "higher"] | None]
    compare: Mapping[str, Sequence[Any]]
    values: Mapping[str, Values]

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
        """The paper's model to hold a measured one against: itself, else the main one, else the first."""
        for name in (model, REFERENCE, *self.values):
            if name in self.values:
                return name
        return None


@cache
def published() -> dict[str, Published]:
    """All tables and figures by label, in the paper's order."""
    return {label: _published(label, page) for label, page in read_json(FILE).items()}


def _published(label: str, page: Mapping[str, Any]) -> Published:
    values: dict[str, dict[Entry, float | Estimate]] = {}
    for model, row, *numbers in page["rows"]:
        for metric, number in zip(page["metrics"], numbers, strict=True):
            if number is not None:
                found = Estimate(*number) if isinstance(number, list) else number
                values.setdefault(model, {})[Entry(row, metric)] = found
    return Published(label, page["title"], page["on"], page["metrics"], page["compare"], values)
