"""Whether two sets of numbers have the same order: of rows, of columns within a row, or against zero.

Sizes of different models are not comparable; which of two is larger is. Pairs that the paper shows as equal say nothing
and are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from reweigh.estimate import Estimate
from reweigh.paper.reproduction.published import Entry, Published, Values


@dataclass(frozen=True)
class Order:
    """Two entries, or one against zero, and which is larger: in the paper and as measured."""

    first: Entry
    second: Entry | None
    published: int
    measured: int

    @property
    def agrees(self) -> bool:
        """Whether both say the same."""
        return self.published == self.measured


def orders(table: Published, paper: Values, measured: Values) -> list[Order]:
    """Every comparison of a table that both sets of numbers can make."""
    found = []
    for first, second in pairs(table):
        entries = [entry for entry in (first, second) if entry is not None]
        if all(entry in paper and entry in measured for entry in entries):
            said, seen = (sign(values, first, second) for values in (paper, measured))
            if said:
                found.append(Order(first, second, said, seen))
    return found


def pairs(table: Published) -> Iterator[tuple[Entry, Entry | None]]:
    """The entries that a table compares."""
    for metric in table.compare.get("rows", ()):
        for one, other in combinations(table.rows, 2):
            yield Entry(one, metric), Entry(other, metric)
    for one, other in table.compare.get("columns", ()):
        for row in table.rows:
            yield Entry(row, one), Entry(row, other)
    for metric in table.compare.get("sign", ()):
        for row in table.rows:
            yield Entry(row, metric), None


def sign(values: Values, first: Entry, second: Entry | None) -> int:
    """1 if the first is larger, -1 if it is smaller, 0 if they are equal."""
    difference = number(values[first]) - (0.0 if second is None else number(values[second]))
    return (difference > 0) - (difference < 0)


def number(value: float | Estimate) -> float:
    """A value without its interval."""
    return value.number if isinstance(value, Estimate) else float(value)
