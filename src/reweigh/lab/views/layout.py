"""A layout: which rows of a frame become the rows and columns of a table, found by their keys.

    layout = Layout("CHAIR", rows=["model", "method"], columns=["figure"], figure="figure", heads={...}, ranked="method")
    view(frame, layout).write(Path("chair.tex"))                    # or .html, .md, .csv; or .terminal()

Each key of the rows has a column of its own, outermost first; those of the columns make headings, the last one below the
others. What no row of the frame has is left out, and so is a key of the rows that is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Key
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Cell, Column, Place, Table, places


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Rows and columns by keys of a frame.

    Attributes:
        title: What the table shows.
        rows: Keys that make the rows, the outermost first.
        columns: Keys that make the columns.
        figure: The key that says what a number is, and so how it is written.
        heads: How the numbers of each figure are written, and in which order.
        ranked: The key whose values are compared with each other; the best and second best are marked.
        names: Headings of the row keys.
        titles: What values of a key are called.
        orders: Values of a key in their order; others follow as the frame has them.
        kept: Row keys that are shown even if they have one value.
        caption: A sentence below the table.
    """

    title: str = ""
    rows: Sequence[str]
    columns: Sequence[str]
    figure: str = "figure"
    heads: Mapping[Key, Column] = field(default_factory=dict)
    ranked: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    titles: Mapping[str, Mapping[Key, str]] = field(default_factory=dict)
    orders: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    kept: Collection[str] = ()
    caption: str = ""

    def head(self, figure: Key) -> Column:
        """Return how the numbers of a figure are written."""
        return self.heads.get(figure) or Column(str(figure))

    def called(self, key: str, value: Key) -> str:
        """Return what a value is called."""
        if key == self.figure:
            return self.head(value).heading
        return self.titles.get(key, {}).get(value, "" if value is None else f"{value}")

    def combinations(self, frame: Frame, keys: Sequence[str]) -> list[tuple[Key, ...]]:
        """Return the values of some keys that occur together, in the order of the layout."""
        ranks = {key: self._rank(frame, key) for key in keys}
        found = dict.fromkeys(tuple(row[key] for key in keys) for row in frame)
        return sorted(
            found, key=lambda one: [ranks[key][value] for key, value in zip(keys, one, strict=True)]
        )

    def _rank(self, frame: Frame, key: str) -> dict[Key, int]:
        known = self.orders.get(key, list(self.heads) if key == self.figure else [])
        return {value: number for number, value in enumerate(dict.fromkeys([*known, *frame.distinct(key)]))}


def view(frame: Frame, layout: Layout) -> Page:
    """Show a frame as a page with one table."""
    return Page(layout.title).table(tabulate(frame, layout))


def tabulate(frame: Frame, layout: Layout) -> Table:
    """Arrange the rows of a frame as a table."""
    if not frame.rows:
        return Table([Column(layout.title)], [])
    named = [key for key in layout.rows if key in layout.kept or len(frame.distinct(key)) > 1]
    named = named or [layout.rows[-1]]
    lines = layout.combinations(frame, layout.rows)
    across = layout.combinations(frame, layout.columns)
    cells = {_at(row.keys, layout.rows, layout.columns): row.estimate for row in frame}
    heads = [Column(layout.names.get(key, "" if key == layout.figure else key)) for key in named]
    for values in across:
        *above, last = zip(layout.columns, values, strict=True)
        shown = layout.head(last[1]) if last[0] == layout.figure else Column(layout.called(*last))
        group = " ".join(layout.called(*one) for one in above) or shown.group
        heads.append(
            Column(shown.name, shown.better, shown.digits, shown.signed, shown.unit, group, ranked=False)
        )
    rows: list[list[Cell]] = []
    for line in lines:
        by_key = dict(zip(layout.rows, line, strict=True))
        rows.append([*(layout.called(key, by_key[key]) for key in named)])
        rows[-1] += [cells.get((line, column)) for column in across]
    formats = {}
    if layout.figure in layout.rows:
        place = layout.rows.index(layout.figure)
        formats = {i: layout.head(line[place]) for i, line in enumerate(lines)}
    marked = dict(_places(layout, lines, across, cells))
    first = [line[0] for line in lines]
    return Table(
        heads,
        rows,
        layout.caption,
        second=True,
        places={(i, j + len(named)): place for (i, j), place in marked.items()},
        formats=formats,
        names=len(named),
        rules=[i for i in range(1, len(lines)) if len(layout.rows) > 1 and first[i] != first[i - 1]],
    )


def _at(keys: Mapping[str, Key], rows: Sequence[str], columns: Sequence[str]) -> tuple[tuple[Key, ...], ...]:
    return tuple(keys[key] for key in rows), tuple(keys[key] for key in columns)


def _places(
    layout: Layout,
    lines: Sequence[tuple[Key, ...]],
    across: Sequence[tuple[Key, ...]],
    cells: Mapping[tuple[tuple[Key, ...], ...], Estimate],
) -> Iterator[tuple[tuple[int, int], Place]]:
    """Yield the best and second best cell among those that differ only in the ranked key."""
    if layout.ranked is None:
        return
    found = []
    for i, line in enumerate(lines):
        for j, column in enumerate(across):
            keys = dict(zip((*layout.rows, *layout.columns), (*line, *column), strict=True))
            rest = tuple(str(value) for key, value in keys.items() if key != layout.ranked)
            found.append((rest, layout.head(keys[layout.figure]), (i, j), cells.get((line, column))))
    for _, some in groupby(sorted(found, key=lambda one: one[0]), key=lambda one: one[0]):
        same = list(some)
        head = same[0][1]
        if head.better is not None:
            values = [None if cell is None else cell.value for *_, cell in same]
            yield from (
                (where, place)
                for (*_, where, _), place in zip(same, places(values, head), strict=True)
                if place
            )
