"""One table, four faces: Markdown, LaTeX, HTML and the terminal.

A cell is text, a number, an ``Estimate`` (a value with its 95% interval) or None. Columns say in which
direction a number is better, so that every face marks the same best values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from reweigh.errors import InputError
from reweigh.results.html import Html, element

if TYPE_CHECKING:
    from rich.table import Table as RichTable

MISSING = "–"
LONG_NAME = 18
"""Letters from which on a row's name keeps some width on a telephone, rather than one word to a line."""

ABREAST = 5
"""Columns of values with intervals beside them that a page is wide enough for; of more, intervals stand below."""

ARROWS = {"lower": "↓", "higher": "↑"}


class Estimate(NamedTuple):
    """A value and the interval around it."""

    value: float
    low: float
    high: float


class Change(Estimate):
    """A difference with its interval: shown with signs, and out of the contest for the best value of its column."""

    __slots__ = ()


Cell = str | int | float | Estimate | None


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, the direction in which its numbers are better, and the decimals shown."""

    name: str
    better: Literal["lower", "higher"] | None = None
    digits: int = 1
    signed: bool = False

    @property
    def heading(self) -> str:
        return f"{self.name} {ARROWS[self.better]}" if self.better else self.name

    def number(self, value: float) -> str:
        """Format a number of this column."""
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:+,}" if self.signed else f"{value:,}"
        if not math.isfinite(value):
            return MISSING
        return f"{value:+.{self.digits}f}" if self.signed else f"{value:.{self.digits}f}"

    def show(self, cell: Cell) -> tuple[str, str]:
        """Split a cell into its main text and the text of its interval."""
        if cell is None:
            return MISSING, ""
        if isinstance(cell, str):
            return cell, ""
        if isinstance(cell, Estimate):
            column = replace(self, signed=self.signed or isinstance(cell, Change))
            value, low, high = (column.number(float(part)) for part in cell)
            return value, f"[{low}, {high}]"
        return self.number(cell), ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns; ``marked`` is a row to mark instead of the best of each column."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    marked: int | None = None
    _best: frozenset[tuple[int, int]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(f"row {number} has {len(row)} cells for {len(self.columns)} columns")
        object.__setattr__(self, "_best", frozenset(self._find_best()))

    def _find_best(self) -> list[tuple[int, int]]:
        if self.marked is not None:
            return [(self.marked, index) for index in range(len(self.columns))]
        found = []
        for index, column in enumerate(self.columns):
            values = [_value(row[index]) for row in self.rows]
            known = [value for value in values if value is not None]
            if column.better is None or len(known) < 2:
                continue
            best = min(known) if column.better == "lower" else max(known)
            # Ties are judged as printed: of two numbers that look equal, one alone in bold would puzzle.
            shown = column.number(best)
            found += [
                (i, index)
                for i, value in enumerate(values)
                if value is not None and column.number(value) == shown
            ]
        return found

    def markdown(self) -> str:
        """A GitHub-flavoured Markdown table."""
        lines = [[_pipe(column.heading) for column in self.columns]]
        lines.append(["---" if self._is_text(index) else "---:" for index in range(len(self.columns))])
        for i, row in enumerate(self.rows):
            lines.append([_pipe(self._plain(i, index, cell)) for index, cell in enumerate(row)])
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
        return f"{body}\n{self.caption}\n" if self.caption else body

    def latex(self) -> str:
        """A LaTeX ``tabular`` with booktabs rules."""
        layout = "".join("l" if self._is_text(index) else "r" for index in range(len(self.columns)))
        lines = [f"\\begin{{tabular}}{{{layout}}}", "\\toprule"]
        lines.append(" & ".join(tex(column.heading) for column in self.columns) + r" \\")
        lines.append("\\midrule")
        for i, row in enumerate(self.rows):
            cells = []
            for index, cell in enumerate(row):
                main, interval = (tex(part) for part in self.columns[index].show(cell))
                main = f"\\textbf{{{main}}}" if (i, index) in self._best else main
                cells.append(f"{main} {{\\scriptsize {interval}}}" if interval else main)
            lines.append(" & ".join(cells) + r" \\")
        lines += ["\\bottomrule", "\\end{tabular}"]
        caption = [f"% {self.caption}"] if self.caption else []
        return "\n".join([*caption, *lines]) + "\n"

    def html(self) -> Html:
        """An HTML table that scrolls sideways where it is too wide."""
        head = element(
            "tr",
            *(
                element("th", column.heading, class_="words" if self._is_text(index) else None, scope="col")
                for index, column in enumerate(self.columns)
            ),
        )
        body = []
        for i, row in enumerate(self.rows):
            cells = []
            for index, cell in enumerate(row):
                main, interval = self.columns[index].show(cell)
                kinds = {"best": (i, index) in self._best, "words": isinstance(cell, str)}
                names = " ".join(name for name, holds in kinds.items() if holds) or None
                heads = index == 0 and isinstance(cell, str)
                extra = [element("span", interval, class_="range")] if interval else []
                cells.append(
                    element("th", main, *extra, class_=names, scope="row")
                    if heads
                    else element("td", main, *extra, class_=names)
                )
            body.append(element("tr", *cells))
        caption = [element("caption", self.caption)] if self.caption else []
        parts = (*caption, element("thead", head), element("tbody", *body))
        table = element("table", *parts, class_=self._layout())
        label = self.caption or ", ".join(column.name for column in self.columns if column.name)
        return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)

    def _layout(self) -> str | None:
        """Classes that lay a page's table out: rows with long names, and more intervals than stand abreast."""
        kinds = {
            "named": any(isinstance(row[0], str) and len(row[0]) > LONG_NAME for row in self.rows),
            "stacked": sum(self._has_interval(place) for place in range(len(self.columns))) > ABREAST,
        }
        return " ".join(name for name, holds in kinds.items() if holds) or None

    def terminal(self) -> RichTable:
        """A table for a rich console; where it would grow wide, intervals stand below their values."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=SIMPLE_HEAD, caption=self.caption or None, caption_justify="left", pad_edge=False
        )
        intervals = sum(self._has_interval(index) for index in range(len(self.columns)))
        between = "\n" if intervals > 2 or (intervals > 1 and len(self.columns) > 3) else " "
        for index, column in enumerate(self.columns):
            words = self._is_text(index)
            # Numbers are never broken; words give way first, but stay readable.
            longest = max((len(cell) for row in self.rows if isinstance(cell := row[index], str)), default=0)
            table.add_column(
                Text(column.heading),
                justify="left" if words else "right",
                no_wrap=not words,
                overflow="fold" if words else "ellipsis",
                min_width=min(longest, 10) if words else None,
            )
        for i, row in enumerate(self.rows):
            cells = []
            for index, cell in enumerate(row):
                main, interval = self.columns[index].show(cell)
                text = Text(main, style="bold" if (i, index) in self._best else "")
                cells.append(text.append(f"{between}{interval}", style="dim not bold") if interval else text)
            table.add_row(*cells)
        return table

    def _is_text(self, index: int) -> bool:
        return any(isinstance(row[index], str) for row in self.rows)

    def _has_interval(self, index: int) -> bool:
        return any(isinstance(row[index], Estimate) for row in self.rows)

    def _plain(self, i: int, index: int, cell: Cell) -> str:
        main, interval = self.columns[index].show(cell)
        main = f"**{main}**" if (i, index) in self._best else main
        return f"{main} {interval}" if interval else main


def _value(cell: Cell) -> float | None:
    if cell is None or isinstance(cell, str | Change):
        return None
    value = cell.value if isinstance(cell, Estimate) else cell
    return value if math.isfinite(value) else None


def _pipe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    MISSING: "--",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(_TEX.get(letter, letter) for letter in text)
