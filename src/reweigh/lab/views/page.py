"""A page built part by part, with five faces: HTML, Markdown, LaTeX, CSV and the terminal.

Words and tables appear in every format; markup and drawings only in HTML, which needs no other file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from reweigh.files.outputs import write_output
from reweigh.lab.estimate import Estimate
from reweigh.lab.views.charts import Draw, alt_text, dots, inline
from reweigh.lab.views.html import Html, part, render
from reweigh.lab.views.table import Cell, Column, Table
from reweigh.marks import STYLE as MARKS_STYLE
from reweigh.text import in_words

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

FOLD = 30
"""Tables longer than this are folded away in HTML."""
STYLE = Path(__file__).with_name("page.css")
"""The style of every page: light and dark, narrow and printed."""


class _Text(NamedTuple):
    text: str
    muted: bool


class _Tabular(NamedTuple):
    table: Table
    fold: int


class _Section(NamedTuple):
    title: str
    anchor: str | None
    parts: list[Html | _Text | _Tabular]


class Page:
    """A page, to which parts are added in the order in which they are shown.

    Examples:
        >>> page = Page("Two numbers", lead="Measured here.").section("Sum").text("2 + 3 is 5.")
        >>> "<h2>Sum</h2>" in page.html()
        True
        >>> print(page.markdown())
        # Two numbers
        <BLANKLINE>
        Measured here.
        <BLANKLINE>
        ## Sum
        <BLANKLINE>
        2 + 3 is 5.
        <BLANKLINE>
    """

    def __init__(self, title: str, *, lead: str = "", footer: str = "") -> None:
        self.title, self.lead, self.footer = title, lead, footer
        self.sections = [_Section("", None, [])]

    def section(self, title: str, *, anchor: str | None = None) -> Page:
        """Begin a section; what is added next belongs to it."""
        self.sections.append(_Section(title, anchor, []))
        return self

    def add(self, *parts: Html) -> Page:
        """Add markup."""
        self.sections[-1].parts.extend(parts)
        return self

    def text(self, *paragraphs: str, muted: bool = False) -> Page:
        """Add paragraphs."""
        self.sections[-1].parts.extend(_Text(one, muted) for one in paragraphs)
        return self

    def table(self, table: Table, *, fold: int = FOLD) -> Page:
        """Add a table, folded away in HTML if it has more than ``fold`` rows."""
        self.sections[-1].parts.append(_Tabular(table, fold))
        return self

    def chart(self, draw: Draw, caption: str, *, alt: str = "", height: float = 3.2) -> Page:
        """Add a drawing."""
        return self.add(part("figure", inline(draw, alt=alt or caption, height=height), caption))

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
        return self.add(part("record", summary, Table([Column("name"), Column("value")], rows)))

    def html(self) -> str:
        """Return the whole document; it needs no other file."""
        styles = [Html(one.read_text(encoding="utf-8")) for one in (MARKS_STYLE, STYLE)]
        return render("page.html", page=self, styles=styles)

    def markdown(self) -> str:
        """Return words and tables as GitHub-flavored Markdown."""
        blocks = [f"# {self.title}", self.lead]
        for title, parts in self._plain():
            blocks.append(f"## {title}" if title else "")
            blocks += [one if isinstance(one, str) else one.markdown().rstrip() for one in parts]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def latex(self) -> str:
        """Return tables as ``tabular``, words as comments; needs booktabs, and xcolor with its table option."""
        blocks = [f"% {one}" for one in (self.title, self.lead) if one]
        for title, parts in self._plain():
            blocks += [f"% {title}"] if title else []
            blocks += [f"% {one}" if isinstance(one, str) else one.latex() for one in parts]
        return "\n".join(blocks) + "\n"

    def csv(self) -> str:
        """Return the tables with their unrounded numbers, a blank line between them."""
        tables = (one for _, parts in self._plain() for one in parts if isinstance(one, Table))
        return "\n".join(one.csv() for one in tables)

    def terminal(self) -> Group:
        """Return words and tables for a rich console."""
        from rich.console import Group
        from rich.text import Text

        blocks: list[RenderableType] = [Text(self.lead)]
        for title, parts in self._plain():
            blocks += [Text(f"\n{title}", style="bold")] if title else []
            blocks += [Text(one) if isinstance(one, str) else one for one in parts]
        return Group(*blocks)

    def _plain(self) -> Iterator[tuple[str, Sequence[str | Table]]]:
        """Yield the sections that have words or tables, with these alone."""
        for title, _, parts in self.sections:
            shown = [one for one in parts if not isinstance(one, Html)]
            if shown:
                yield title, [one.text if isinstance(one, _Text) else one.table for one in shown]

    def write(self, path: Path) -> Path:
        """Write the page to a file: as Markdown, LaTeX or CSV by its ending, otherwise as HTML."""
        face = {".md": self.markdown, ".tex": self.latex, ".csv": self.csv}.get(path.suffix, self.html)
        return write_output(path, face())


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        elif value not in (None, []):
            yield f"{before}{name}", in_words(value)
