"""One table, four output formats: Markdown, LaTeX, HTML and the terminal.

A cell is text, a number, an ``Estimate`` or None. Columns say in which direction a number is better, so that every format
marks the same best values; ``shades`` mark what differs from a base for the better or for the worse.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate
from reweigh.lab.views.html import Html, element

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

MISSING = "–"
RATIO = "×"
"""The unit of a ratio to a reference."""
LONG_NAME = 14
"""Row names longer than this keep a minimum width, instead of one word per line."""

ABREAST = 4
"""A page shows at most this many columns with the interval beside the value; otherwise intervals go below."""

ARROWS = {"lower": "↓", "higher": "↑"}
Cell = str | int | float | Estimate | None
Shade = Literal["better-strong", "better", "", "worse", "worse-strong"]
Place = Literal["best", "second", ""]
MARKS: dict[Shade, tuple[str, str, str]] = {
    "better": (" ▲", "blue", "blue!10"),
    "better-strong": (" ▲▲", "bold blue", "blue!25"),
    "worse": (" ▼", "red", "red!15"),
    "worse-strong": (" ▼▼", "bold red", "red!35"),
    "": ("", "", ""),
}
"""How a shade is marked: its sign, its style in a terminal and its color in LaTeX."""


@dataclass(frozen=True, slots=True)
class Column:
    """How a column is headed and how its numbers are written.

    Attributes:
        name: Its heading.
        better: The direction in which its numbers are better, if there is one.
        digits: Decimals.
        signed: Whether positive numbers get a plus sign.
        unit: Written behind every number.
        group: Heading that adjacent columns share.
        ranked: Whether the best number is marked.
    """

    name: str
    better: Literal["lower", "higher"] | None = None
    digits: int = 1
    signed: bool = False
    unit: str = ""
    group: str = ""
    ranked: bool = True

    @property
    def heading(self) -> str:
        return f"{self.name} {ARROWS[self.better]}" if self.better else self.name

    def number(self, value: float | None) -> str:
        """Format a number of this column."""
        if value is None or not math.isfinite(value):
            return MISSING
        sign = "+" if self.signed else ""
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:{sign},}{self.unit}"
        return f"{value:{sign}z.{self.digits}f}{self.unit}"  # z: no -0.0

    def show(self, cell: Cell) -> tuple[str, str]:
        """Split a cell into its main text and the text of its interval."""
        if cell is None:
            return MISSING, ""
        if isinstance(cell, str):
            return cell, ""
        if not isinstance(cell, Estimate):
            return self.number(cell), ""
        low, high = (
            replace(self, unit="").number(None if end is None else float(end)) for end in cell.parts[1:]
        )
        value = self.number(None if cell.value is None else float(cell.value))
        return value, f"[{low}, {high}]" if cell.bounded else ""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under columns.

    Attributes:
        columns: What the cells mean.
        rows: One cell for each column.
        caption: A sentence for below the table.
        changes: Rows of differences: shown with signs, and never the best.
        shades: Cells that are better or worse than a base, by row and column.
        second: Whether the second best of a column is underlined.
        links: Addresses of rows, for pages.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    changes: Collection[int] = ()
    shades: Mapping[tuple[int, int], Shade] = field(default_factory=dict)
    second: bool = False
    links: Mapping[int, str] = field(default_factory=dict)
    _places: dict[tuple[int, int], Place] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(f"row {number} has {len(row)} cells for {len(self.columns)} columns")
        object.__setattr__(self, "_places", self._find_places())

    def _find_places(self) -> dict[tuple[int, int], Place]:
        found: dict[tuple[int, int], Place] = {}
        for index, column in enumerate(self.columns):
            if column.better is None or not column.ranked:
                continue
            cells = [None if i in self.changes else _value(row[index]) for i, row in enumerate(self.rows)]
            for i, place in enumerate(places(cells, column)):
                if place == "best" or self.second:
                    found[i, index] = place
        return found

    def place(self, row: int, column: int) -> Place:
        """Whether a cell is marked as the best or second best of its column."""
        return self._places.get((row, column), "")

    def shade(self, row: int, column: int) -> Shade:
        """Whether a cell is marked as better or worse than the base."""
        return self.shades.get((row, column), "")

    def show(self, row: int, column: int, *, sign: bool = True) -> tuple[str, str]:
        """Return the text of a cell with the sign of its shade, and the text of its interval."""
        one = self.columns[column]
        one = replace(one, signed=True) if row in self.changes else one
        main, interval = one.show(self.rows[row][column])
        return main + (MARKS[self.shade(row, column)][0] if sign else ""), interval

    def groups(self) -> list[tuple[str, int]]:
        """Return adjacent columns of one group with their number, without the first column; empty without groups."""
        found = [(name, len(list(some))) for name, some in groupby(one.group for one in self.columns[1:])]
        return found if any(name for name, _ in found) else []

    def markdown(self) -> str:
        """Return a GitHub-flavored Markdown table."""
        several = len(self.groups()) > 2
        heads = [f"{one.group} {one.heading}".strip() if several else one.heading for one in self.columns]
        lines = [[_pipe(head) for head in heads]]
        lines.append(["---" if self._is_text(index) else "---:" for index in range(len(self.columns))])
        marks = {"best": "**{}**", "second": "<u>{}</u>", "": "{}"}
        for i in range(len(self.rows)):
            cells = []
            for j in range(len(self.columns)):
                main, interval = self.show(i, j, sign=False)
                shown = marks[self.place(i, j)].format(main) + MARKS[self.shade(i, j)][0]
                cells.append(_pipe(f"{shown} {interval}".strip()))
            lines.append(cells)
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
        return f"{body}\n{self.caption}\n" if self.caption else body

    def latex(self) -> str:
        """Return a LaTeX ``tabular`` with booktabs rules; shades need xcolor with its table option."""
        layout = "".join("l" if self._is_text(index) else "r" for index in range(len(self.columns)))
        lines = [f"\\begin{{tabular}}{{{layout}}}", "\\toprule"]
        if groups := self.groups():
            starts = [2 + sum(width for _, width in groups[:index]) for index in range(len(groups))]
            spans = (rf"\multicolumn{{{width}}}{{c}}{{{tex(name)}}}" for name, width in groups)
            lines.append(" & ".join(["", *spans]) + r" \\")
            ends = zip(starts, groups, strict=True)
            lines.append("".join(rf"\cmidrule(lr){{{at}-{at + width - 1}}}" for at, (_, width) in ends))
        lines.append(" & ".join(tex(column.heading) for column in self.columns) + r" \\")
        lines.append("\\midrule")
        columns = range(len(self.columns))
        lines += [" & ".join(self._tex_cell(i, j) for j in columns) + r" \\" for i in range(len(self.rows))]
        lines += ["\\bottomrule", "\\end{tabular}"]
        caption = [f"% {self.caption}"] if self.caption else []
        return "\n".join([*caption, *lines]) + "\n"

    def _tex_cell(self, i: int, j: int) -> str:
        main, interval = (tex(part) for part in self.show(i, j, sign=False))
        main = {"best": rf"\textbf{{{main}}}", "second": rf"\underline{{{main}}}", "": main}[self.place(i, j)]
        main = f"{main} {{\\scriptsize {interval}}}" if interval else main
        color = MARKS[self.shade(i, j)][2]
        return rf"\cellcolor{{{color}}}{main}" if color else main

    def html(self) -> Html:
        """Return an HTML table that scrolls sideways where it is too wide."""
        heads = [
            element("th", column.heading, class_="words" if self._is_text(index) else None, scope="col")
            for index, column in enumerate(self.columns)
        ]
        top = [
            element("th", name, colspan=width, class_="group", scope="colgroup")
            for name, width in self.groups()
        ]
        head = [*([element("tr", element("td", ""), *top)] if top else []), element("tr", *heads)]
        body = [
            element("tr", *(self._html_cell(i, j) for j in range(len(self.columns))))
            for i in range(len(self.rows))
        ]
        caption = [element("caption", self.caption)] if self.caption else []
        parts = (*caption, element("thead", *head), element("tbody", *body))
        table = element("table", *parts, class_=self._layout())
        label = self.caption or ", ".join(column.name for column in self.columns if column.name)
        return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)

    def _html_cell(self, i: int, j: int) -> Html:
        main, interval = self.show(i, j)
        words = isinstance(self.rows[i][j], str)
        kinds = (self.shade(i, j), self.place(i, j), "words" if words else "")
        names = " ".join(kind for kind in kinds if kind) or None
        extra = [element("span", interval, class_="range")] if interval else []
        shown: str = element("u", main) if self.place(i, j) == "second" else main
        if j == 0 and words:
            linked = element("a", main, href=self.links[i]) if i in self.links else shown
            return element("th", linked, *extra, class_=names, scope="row")
        return element("td", shown, *extra, class_=names)

    def _layout(self) -> str | None:
        """Return the classes for a table's layout: rows with long names, many intervals."""
        kinds = {
            "named": any(isinstance(row[0], str) and len(row[0]) > LONG_NAME for row in self.rows),
            "stacked": sum(self._has_interval(index) for index in range(len(self.columns))) > ABREAST,
        }
        return " ".join(name for name, holds in kinds.items() if holds) or None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.terminal(options.max_width)

    def terminal(self, width: int | None = None) -> Group:
        """Return the table for a rich console: intervals beside or below their values, columns in parts that fit."""
        from rich.console import Group
        from rich.text import Text

        columns = range(1, len(self.columns))
        beside, below = self._texts(" "), self._texts("\n")
        whole = [one for one in (beside, below) if _fits(one, [0, *columns], width)]
        in_parts = [one for one in (beside, below) if all(_fits(one, [0, j], width) for j in columns)]
        chosen = [*whole, *in_parts, below][0]
        parts: list[list[int]] = [[0]]
        for j in columns:
            if len(parts[-1]) > 1 and not _fits(chosen, [*parts[-1], j], width):
                parts.append([0])
            parts[-1].append(j)
        shown: list[RenderableType] = [self._part(chosen, part) for part in parts]
        return Group(*shown, *([Text(self.caption, style="dim italic")] if self.caption else []))

    def _texts(self, between: str) -> list[list[Text]]:
        """Return heading and cells of each column."""
        from rich.text import Text

        emphasis = {"best": "bold", "second": "underline", "": ""}
        found = []
        for j, column in enumerate(self.columns):
            cells = [Text(column.heading)]
            for i in range(len(self.rows)):
                main, interval = self.show(i, j)
                text = Text(main, f"{MARKS[self.shade(i, j)][1]} {emphasis[self.place(i, j)]}".strip())
                plain = "dim not bold not underline"
                cells.append(text.append(f"{between}{interval}", plain) if interval else text)
            found.append(cells)
        return found

    def _part(self, texts: Sequence[Sequence[Text]], columns: Sequence[int]) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for j in columns:
            words = self._is_text(j)
            table.add_column(  # numbers are never broken; words give way first, but stay readable
                texts[j][0],
                justify="left" if words else "right",
                no_wrap=not words,
                overflow="fold" if words else "ellipsis",
                min_width=min(_across(texts[j]), 24 if j == 0 else 10) if words else None,
            )
        for i in range(1, len(self.rows) + 1):
            table.add_row(*(texts[j][i] for j in columns))
        return table

    def _is_text(self, index: int) -> bool:
        return any(isinstance(row[index], str) for row in self.rows)

    def _has_interval(self, index: int) -> bool:
        return any(isinstance(cell := row[index], Estimate) and cell.bounded for row in self.rows)


def places(values: Sequence[float | None], column: Column) -> list[Place]:
    """Say which values are the best and the second best; values that are printed alike share a place.

    Examples:
        >>> places([17.1, 9.4, 12.0, 9.4], Column("CHAIR_I", "lower"))
        ['', 'best', 'second', 'best']
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return [""] * len(values)
    ranked = [column.number(value) for value in sorted(known, reverse=column.better == "higher")]
    named: tuple[Place, Place] = ("best", "second")
    place = dict(zip(dict.fromkeys(ranked), named, strict=False))
    return [place.get(column.number(value), "") if value is not None else "" for value in values]


def _across(texts: Sequence[Text]) -> int:
    return max(len(line) for text in texts for line in (text.plain.split("\n") or [""]))


def _fits(texts: Sequence[Sequence[Text]], columns: Sequence[int], width: int | None) -> bool:
    return width is None or sum(_across(texts[j]) + 3 for j in columns) - 1 <= width


def _value(cell: Cell) -> float | None:
    if cell is None or isinstance(cell, str):
        return None
    value = cell.value if isinstance(cell, Estimate) else cell
    return value if value is not None and math.isfinite(value) else None


def _pipe(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
    "×": r"$\times$",
    MISSING: "--",
    **{letter: "\\" + letter for letter in "&%$#_{}"},
}


def tex(text: str) -> str:
    """Escape LaTeX's special characters."""
    return "".join(_TEX.get(letter, letter) for letter in text)
