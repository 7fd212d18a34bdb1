"""A page built part by part: text, tables, charts, examples. It needs no other file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.files.outputs import write_output
from reweigh.results.charts import alt_text, dots, inline
from reweigh.results.html import Html, document, element, join, section
from reweigh.results.table import Cell, Column, Table
from reweigh.text import in_words

FOLD = 30
"""Tables longer than this are folded away on the screen."""


class Page:
    """A page, to which parts are added in the order in which they are shown.

    Example:
        >>> page = Page("Two numbers", lead="Measured here.").section("Sum").text("2 + 3 is 5.")
        >>> "<h2>Sum</h2>" in page.html()
        True
    """

    def __init__(self, title: str, *, lead: str = "", footer: str = "") -> None:
        self.title, self.lead, self.footer = title, lead, footer
        self._sections: list[tuple[str | None, str | None, list[Html]]] = [(None, None, [])]

    def section(self, title: str, *, anchor: str | None = None) -> Page:
        """Begin a section; what is added next belongs to it."""
        self._sections.append((title, anchor, []))
        return self

    def add(self, *parts: Html) -> Page:
        """Add markup."""
        self._sections[-1][2].extend(parts)
        return self

    def text(self, *paragraphs: str, muted: bool = False) -> Page:
        """Add paragraphs."""
        return self.add(*(element("p", one, class_="muted" if muted else None) for one in paragraphs))

    def table(self, table: Table, *, fold: int = FOLD) -> Page:
        """Add a table, folded away if it has more than ``fold`` rows."""
        shown = table.html()
        if len(table.rows) > fold:
            shown = element("details", element("summary", f"Table, {len(table.rows)} rows"), shown)
        return self.add(shown)

    def chart(
        self, draw: Callable[[Any, bool], None], caption: str, *, alt: str = "", height: float = 3.2
    ) -> Page:
        """Add a drawing; ``draw`` receives a matplotlib panel and whether the screen is narrow."""
        drawing = inline(draw, alt=alt or caption, height=height)
        return self.add(element("figure", drawing, element("figcaption", caption)))

    def intervals(
        self, values: Mapping[str, Estimate], caption: str, *, zero: bool = False, digits: int = 1
    ) -> Page:
        """Add estimates drawn as dots with whiskers; ``zero`` is for differences. Without values nothing is added."""
        if not values:
            return self

        def draw(panel: Any, narrow: bool) -> None:
            dots(panel, {"": values}, zero=zero, digits=None if narrow else digits)

        alt = alt_text(caption.rstrip("."), values, digits, signed=zero)
        return self.chart(draw, caption, alt=alt, height=0.7 + 0.28 * len(values))

    def record(self, values: Mapping[str, Any], summary: str) -> Page:
        """Add everything that results depend on, folded away: nested values under dotted names, empty ones left out."""
        rows: list[list[Cell]] = [[name, text] for name, text in _flat(values)]
        table = Table([Column("name"), Column("value")], rows)
        return self.add(element("details", element("summary", summary), table.html()))

    def html(self) -> str:
        """The whole document."""
        parts = [
            join(inside) if title is None else section(title, *inside, anchor=anchor)
            for title, anchor, inside in self._sections
        ]
        return document(self.title, *parts, lead=self.lead, footer=self.footer)

    def write(self, path: Path) -> Path:
        """Write the page to a file."""
        return write_output(path, self.html())


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value not in (None, []):
            yield f"{before}{name}", in_words(value)
