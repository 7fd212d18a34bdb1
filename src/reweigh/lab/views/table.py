"""One table, five faces: Markdown, LaTeX, HTML, CSV and the terminal.

A cell is text, a number, an ``Estimate`` or None. Columns say in which direction a number is better, so that every format
marks the same best values; ``shades`` mark what differs from a base for the better or for the worse.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby, pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate
from reweigh.lab.views.html import Html, part, render

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

WIDE = 9
"""A page sets tables with more columns in small type."""

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
        return f"{value:{sign}z,.{self.digits}f}{self.unit}"  # z: no -0.0

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


class Shown(NamedTuple):
    """A cell as it is shown: its text, its interval, its marks, and where it leads."""

    main: str
    interval: str
    place: Place
    shade: Shade
    words: bool
    link: str | None

    @property
    def sign(self) -> str:
        return MARKS[self.shade][0]

    @property
    def color(self) -> str:
        return MARKS[self.shade][2]

    @property
    def text(self) -> str:
        return self.main + self.sign

    @property
    def kinds(self) -> str:
        """Its classes in HTML."""
        return " ".join(kind for kind in (self.shade, self.place, "words" if self.words else "") if kind)


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
        places: Which cells are the best and the second best, if the columns do not say so.
        formats: How the numbers of a row are written, where rows and not columns say what they are.
        names: How many columns at the left name the row; a name that repeats is shown once.
        rules: Rows above which a line is drawn.
    """

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    changes: Collection[int] = ()
    shades: Mapping[tuple[int, int], Shade] = field(default_factory=dict)
    second: bool = False
    links: Mapping[int, str] = field(default_factory=dict)
    places: Mapping[tuple[int, int], Place] = field(default_factory=dict)
    formats: Mapping[int, Column] = field(default_factory=dict)
    names: int = 1
    rules: Collection[int] = ()
    _places: dict[tuple[int, int], Place] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise InputError(f"row {number} has {len(row)} cells for {len(self.columns)} columns")
        object.__setattr__(self, "_places", self._find_places())

    def _find_places(self) -> dict[tuple[int, int], Place]:
        found = dict(self.places)
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

    def show(self, row: int, column: int) -> Shown:
        """Return a cell as every face shows it."""
        cell = self.rows[row][column]
        head = self.formats.get(row, self.columns[column])
        if (
            column < self.names - 1
            and row
            and self.rows[row][: column + 1] == self.rows[row - 1][: column + 1]
        ):
            cell = ""
        head = replace(head, signed=True) if row in self.changes else head
        main, interval = head.show(cell)
        link = self.links.get(row) if column == 0 else None
        shade = self.shades.get((row, column), "")
        return Shown(main, interval, self.place(row, column), shade, isinstance(cell, str), link)

    @property
    def cells(self) -> list[list[Shown]]:
        """Every cell as it is shown."""
        return [[self.show(i, j) for j in range(len(self.columns))] for i in range(len(self.rows))]

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of one group with their number, without the names; empty without groups."""
        named = (one.group for one in self.columns[self.names :])
        found = [(name, len(list(some))) for name, some in groupby(named)]
        return found if any(name for name, _ in found) else []

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The first and last column of each named group, counted from one."""
        ends = list(accumulate((width for _, width in self.groups), initial=self.names))
        pairs = zip(self.groups, pairwise(ends), strict=True)
        return [(before + 1, last) for (name, _), (before, last) in pairs if name]

    @property
    def full_headings(self) -> list[str]:
        """The headings, with their groups if there are several."""
        several = len(self.groups) > 2 or len({one.heading for one in self.columns}) < len(self.columns)
        return [f"{one.group} {one.heading}".strip() if several else one.heading for one in self.columns]

    @property
    def label(self) -> str:
        """The table in words, for readers who do not see it."""
        return self.caption or ", ".join(column.name for column in self.columns if column.name)

    @property
    def layout(self) -> str:
        """Classes for a page's layout: rows with long names, many intervals."""
        wide = len(self.columns) > WIDE
        kinds = {
            "named": any(isinstance(row[0], str) and len(row[0]) > LONG_NAME for row in self.rows),
            "stacked": wide or sum(map(self._has_interval, range(len(self.columns)))) > ABREAST,
            "wide-table": wide,
        }
        return " ".join(name for name, holds in kinds.items() if holds)

    def markdown(self) -> str:
        """Return a GitHub-flavored Markdown table."""
        return render("table.md", it=self)

    def latex(self) -> str:
        """Return a LaTeX ``tabular`` with booktabs rules; shades need xcolor with its table option."""
        return render("table.tex", it=self)

    def html(self) -> Html:
        """Return an HTML table that scrolls sideways where it is too wide."""
        return part("table", self)

    def csv(self) -> str:
        """Return the unrounded numbers, each interval in two further columns."""
        bounded = [self._has_interval(j) for j in range(len(self.columns))]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        heads = [f"{one.group} {one.name}".strip() for one in self.columns]
        writer.writerow(
            name
            for head, whole in zip(heads, bounded, strict=True)
            for name in ([head, f"{head} low", f"{head} high"] if whole else [head])
        )
        for row in self.rows:
            pairs = zip(row, bounded, strict=True)
            writer.writerow(one for cell, whole in pairs for one in _plain(cell)[: 3 if whole else 1])
        return text.getvalue()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield self.terminal(options.max_width)

    def terminal(self, width: int | None = None) -> Group:
        """Return the table for a rich console: intervals beside or below their values, columns in parts that fit."""
        from rich.console import Group
        from rich.text import Text

        names, columns = list(range(self.names)), range(self.names, len(self.columns))
        beside, below = self._texts(" "), self._texts("\n")
        whole = [one for one in (beside, below) if _fits(one, [*names, *columns], width)]
        in_parts = [one for one in (beside, below) if all(_fits(one, [*names, j], width) for j in columns)]
        chosen = [*whole, *in_parts, below][0]
        parts = [list(names)]
        for j in columns:
            if len(parts[-1]) > self.names and not _fits(chosen, [*parts[-1], j], width):
                parts.append(list(names))
            parts[-1].append(j)
        shown: list[RenderableType] = [self._part(chosen, part) for part in parts]
        return Group(*shown, *([Text(self.caption, style="dim italic")] if self.caption else []))

    def _texts(self, between: str) -> list[list[Text]]:
        """Return heading and cells of each column."""
        from rich.text import Text

        emphasis = {"best": "bold", "second": "underline", "": ""}
        repeated = len({column.heading for column in self.columns}) < len(self.columns)
        found = []
        for j, column in enumerate(self.columns):
            cells = [
                Text(f"{column.group}\n{column.heading}" if repeated and column.group else column.heading)
            ]
            for i in range(len(self.rows)):
                one = self.show(i, j)
                text = Text(one.text, f"{MARKS[one.shade][1]} {emphasis[one.place]}".strip())
                plain = "dim not bold not underline"
                cells.append(text.append(f"{between}{one.interval}", plain) if one.interval else text)
            found.append(cells)
        return found

    def _part(self, texts: Sequence[Sequence[Text]], columns: Sequence[int]) -> RichTable:
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable

        table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
        for j in columns:
            words = self.is_text(j)
            table.add_column(  # numbers are never broken; words give way first, but stay readable
                texts[j][0],
                justify="left" if words else "right",
                no_wrap=not words,
                overflow="fold" if words else "ellipsis",
                min_width=min(_across(texts[j]), 24 if j == 0 else 10) if words else None,
            )
        for i in range(1, len(self.rows) + 1):
            table.add_row(*(texts[j][i] for j in columns), end_section=i in self.rules)
        return table

    def is_text(self, index: int) -> bool:
        """Whether a column has words."""
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


def _plain(cell: Cell) -> tuple[str | float | None, float | None, float | None]:
    """Return a cell for CSV: its value, and both ends of its interval."""
    return cell.parts if isinstance(cell, Estimate) else (cell, None, None)
