"""Arms side by side: every figure with its interval, and its paired difference to one of the arms.

A figure is shaded only if the paired interval of its difference excludes zero, and strongly if it also moved by more than
20%; a ratio is shaded if its interval excludes 1. Knows frames only, neither arms nor models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Key
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import RATIO, Column, Place, Shade, Table

STRONG = 0.20
BRACKETS = "Brackets are 95% image-bootstrap intervals."
RANKS = "Bold is the best of a column, underlined the second best."
Keys: TypeAlias = Mapping[str, Key]


def shade(difference: Estimate, base: float | None, better: str | None) -> Shade:
    """Shade a figure whose difference is beyond chance, strongly if it also moved by more than 20%."""
    if better is None or difference.value is None or not difference.beyond_chance:
        return ""
    strong = bool(base) and abs(difference.value) > STRONG * abs(base or 1.0)
    if (difference.value < 0) == (better == "lower"):
        return "better-strong" if strong else "better"
    return "worse-strong" if strong else "worse"


@dataclass(frozen=True)
class Contrast:
    """Some rows and columns of a frame as two tables: values, and differences to a reference.

    Attributes:
        frame: The estimates.
        rows: The title of each row, and the keys that find it in the frame.
        columns: How each figure is shown, and the keys that find it.
        reference: What the frame calls the reference, under its key ``against``.
        base: The number of its row.
        kind: What a row is, in a word.
        versus: The reference in words.
    """

    frame: Frame
    rows: Sequence[tuple[str, Keys]]
    columns: Sequence[tuple[Column, Keys]]
    reference: str = "base"
    base: int = 0
    kind: str = "method"
    versus: str = "the base"

    def value(self, row: int, column: int) -> Estimate | None:
        """Return the figure of a row, where there is one."""
        return self._find(row, column, None)

    def difference(self, row: int, column: int) -> Estimate | None:
        """Return its paired difference to the reference, where there is one."""
        return self._find(row, column, self.reference)

    def _find(self, row: int, column: int, against: str | None) -> Estimate | None:
        return self.frame.get(**self.rows[row][1], **self.columns[column][1], **{AGAINST: against})

    def shade(self, row: int, column: int) -> Shade:
        """Return how a figure is shaded; the reference is not."""
        head, _ = self.columns[column]
        cell, base = self.value(row, column), self.value(self.base, column)
        change = self.difference(row, column)
        if head.unit == RATIO and cell is not None:
            change = cell.map(lambda ratio: ratio - 1)
        if row == self.base or change is None:
            return ""
        return shade(change, None if base is None else base.value, head.better)

    def place(self, row: int, column: int) -> Place:
        """Return whether a figure is the best or second best of its column, ties judged as printed."""
        return self.values.place(row, column + 1)

    @cached_property
    def values(self) -> Table:
        """Every figure of every row, shaded and ranked."""
        columns = range(len(self.columns))
        rows = [[title, *(self.value(i, j) for j in columns)] for i, (title, _) in enumerate(self.rows)]
        shades = {(i, j + 1): self.shade(i, j) for i in range(len(rows)) for j in columns}
        heads = [Column(self.kind), *(head for head, _ in self.columns)]
        return Table(heads, rows, BRACKETS, shades=shades, second=True)

    @cached_property
    def differences(self) -> Table | None:
        """The differences to the reference, of the columns that have any."""
        others = [i for i in range(len(self.rows)) if i != self.base]
        compared = [
            j for j in range(len(self.columns)) if any(self.difference(i, j) is not None for i in others)
        ]
        if not compared:
            return None
        rows = [[self.rows[i][0], *(self.difference(i, j) for j in compared)] for i in others]
        shades = {
            (row, place): self.shade(i, j)
            for row, i in enumerate(others)
            for place, j in enumerate(compared, 1)
        }
        heads = [replace(self.columns[j][0], signed=True, ranked=False) for j in compared]
        return Table([Column(self.kind), *heads], rows, shades=shades)

    def add_to(self, page: Page, *notes: str) -> Page:
        """Add both tables to a page, with what a reader must know to read them."""
        shades = (
            f"▲ better and ▼ worse than {self.versus} beyond chance (the paired 95% interval excludes no change), "
            "doubled where the figure moved by more than 20%."
        )
        ranks = [RANKS] if any(head.better and head.ranked for head, _ in self.columns) else []
        page.section("Figures").table(self.values, fold=len(self.rows)).text(
            shades, *ranks, *notes, muted=True
        )
        if self.differences is not None:
            page.section(f"Difference to {self.versus}, with paired 95% image-bootstrap intervals")
            page.table(self.differences, fold=len(self.rows))
        return page
