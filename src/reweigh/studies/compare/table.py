"""The table of a comparison in the layout of the paper's main table, as Markdown, HTML, LaTeX, JSON or for a terminal.

Cells are shaded by how far they are from greedy decoding, in the direction that is better: beyond 5% lightly, beyond
20% strongly. In each column of figures the best is bold and the second best underlined. Knows no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from reweigh.report.html import Html, element, page
from reweigh.report.tables import ARROWS, MISSING

if TYPE_CHECKING:
    from rich.table import Table as RichTable

LIGHT, STRONG = 0.05, 0.20
Shade = Literal["better-strong", "better", "", "worse", "worse-strong"]
TEX_SHADES = {"better": "green!15", "better-strong": "green!35", "worse": "red!15", "worse-strong": "red!35"}
SIGNS = {"better": " ▲", "better-strong": " ▲▲", "worse": " ▼", "worse-strong": " ▼▼", "": ""}
STYLES = {
    "better": "green",
    "better-strong": "bold green",
    "worse": "red",
    "worse-strong": "bold red",
    "": "",
}
CSS = """
td.better { background: #dcefdc; } td.better-strong { background: #a9d8a9; }
td.worse { background: #fbe0de; } td.worse-strong { background: #f3aaa6; }
td.second { text-decoration: underline; text-underline-offset: .25em; }
th.group { text-align: center; border-bottom: 1px solid var(--line); }
@media (prefers-color-scheme: dark) {
  td.better { background: #1d3b26; } td.better-strong { background: #23602f; }
  td.worse { background: #4a2324; } td.worse-strong { background: #7a2c2c; } }
"""


@dataclass(frozen=True)
class Figure:
    """A column: its group (a benchmark, or cost), name, better direction, and how its numbers are written."""

    group: str
    name: str
    better: Literal["lower", "higher"] | None
    digits: int = 2
    unit: str = ""
    ranked: bool = True

    def show(self, value: float | None) -> str:
        """A number of this column as text."""
        return MISSING if value is None else f"{value:.{self.digits}f}{self.unit}"

    @property
    def heading(self) -> str:
        """Name and arrow."""
        return f"{self.name} {ARROWS[self.better]}" if self.better else self.name


@dataclass(frozen=True)
class Row:
    """A method's figures, its regime in words, and why it has none where it has none."""

    title: str
    values: Sequence[float | None]
    regime: str = ""
    reason: str | None = None


def shade(value: float | None, base: float | None, better: str | None) -> Shade:
    """How far a figure is from the base's, for the better or for the worse."""
    if value is None or base is None or better is None or base == 0:
        return ""
    change = (value - base) / abs(base) * (1 if better == "higher" else -1)
    if abs(change) <= LIGHT:
        return ""
    if change > 0:
        return "better-strong" if change > STRONG else "better"
    return "worse-strong" if change < -STRONG else "worse"


@dataclass(frozen=True)
class Comparison:
    """Rows of methods, the base first, under columns of figures."""

    model: str
    figures: Sequence[Figure]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def shade_of(self, row: int, column: int) -> Shade:
        """The shade of a cell; the base has none."""
        if row == 0:
            return ""
        value, base = self.rows[row].values[column], self.rows[0].values[column]
        return shade(value, base, self.figures[column].better)

    def rank_of(self, row: int, column: int) -> Literal["best", "second", ""]:
        """Whether a cell is the best or second best of its column, ties judged as printed."""
        figure, value = self.figures[column], self.rows[row].values[column]
        known = [one for one in (each.values[column] for each in self.rows) if one is not None]
        if figure.better is None or not figure.ranked or value is None or len(known) < 2:
            return ""
        ranked = sorted(known, reverse=figure.better == "higher")
        written = list(dict.fromkeys(figure.show(one) for one in ranked))
        mine = figure.show(value)
        return "best" if mine == written[0] else ("second" if len(written) > 1 and mine == written[1] else "")

    def groups(self) -> list[tuple[str, int]]:
        """Adjacent columns of one group, with their number."""
        found: list[tuple[str, int]] = []
        for figure in self.figures:
            if found and found[-1][0] == figure.group:
                found[-1] = (figure.group, found[-1][1] + 1)
            else:
                found.append((figure.group, 1))
        return found

    def caption(self) -> list[str]:
        """What a reader must know to read the table."""
        regimes = "; ".join(f"{row.title}: {row.regime}" for row in self.rows if row.regime)
        missing = [f"{row.title} was not run: {row.reason}." for row in self.rows if row.reason]
        return [
            *self.notes,
            f"Each method is answered and timed in its own decoding regime ({regimes}).",
            *missing,
        ]

    def markdown(self) -> str:
        """GitHub-flavoured Markdown; shades become arrows."""
        many = len({figure.group for figure in self.figures}) > 2
        names = [f"{one.group} {one.heading}" if many else one.heading for one in self.figures]
        lines = ["| " + " | ".join([_pipe(self.model), *map(_pipe, names)]) + " |"]
        lines.append("| --- |" + " ---: |" * len(self.figures))
        for i, row in enumerate(self.rows):
            cells = []
            for j, figure in enumerate(self.figures):
                text, rank = figure.show(row.values[j]), self.rank_of(i, j)
                text = f"**{text}**" if rank == "best" else (f"<u>{text}</u>" if rank == "second" else text)
                cells.append(text + SIGNS[self.shade_of(i, j)])
            lines.append("| " + " | ".join([_pipe(row.title), *cells]) + " |")
        legend = "▲ better and ▼ worse than the base by more than 5%, doubled by more than 20%."
        return "\n".join([*lines, "", legend, *self.caption()]) + "\n"

    def latex(self) -> str:
        """A ``tabular`` in the paper's layout; needs booktabs, and xcolor with its table option."""
        spans, rules, column = [], [], 2
        for group, width in self.groups():
            spans.append(rf"\multicolumn{{{width}}}{{c}}{{{_tex(group)}}}")
            rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
            column += width
        lines = [f"% {line}" for line in self.caption()]
        lines += [rf"\begin{{tabular}}{{l{'c' * len(self.figures)}}}", r"\toprule"]
        lines += ["& " + " & ".join(spans) + r" \\", "".join(rules)]
        lines.append("Method & " + " & ".join(_tex(one.name) + _arrow(one) for one in self.figures) + r" \\")
        lines.append(r"\midrule")
        for i, row in enumerate(self.rows):
            cells = [self._tex_cell(i, j) for j in range(len(self.figures))]
            title = _tex(self.model) if i == 0 else rf"\quad {_tex(row.title)}"
            lines.append(f"{title} & " + " & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"

    def _tex_cell(self, i: int, j: int) -> str:
        figure, value = self.figures[j], self.rows[i].values[j]
        text = "--" if value is None else _tex(figure.show(value)).replace("×", r"$\times$")
        rank, colour = self.rank_of(i, j), TEX_SHADES.get(self.shade_of(i, j))
        text = rf"\textbf{{{text}}}" if rank == "best" else text
        text = rf"\underline{{{text}}}" if rank == "second" else text
        return rf"\cellcolor{{{colour}}}{text}" if colour else text

    def html(self, title: str = "Comparison of decoders") -> str:
        """A page that needs no other file."""
        spans = [element("th", group, colspan=width, class_="group") for group, width in self.groups()]
        top = element("tr", element("th", ""), *spans)
        head = element("tr", element("th", "Method"), *(element("th", one.heading) for one in self.figures))
        body = []
        for i, row in enumerate(self.rows):
            cells = [element("td", row.title, title=row.regime or None)]
            for j, figure in enumerate(self.figures):
                kind = " ".join(part for part in (self.shade_of(i, j), self.rank_of(i, j)) if part)
                cells.append(element("td", figure.show(row.values[j]), class_=kind or None))
            body.append(element("tr", *cells))
        table = element("table", element("thead", top, head), element("tbody", *body))
        notes = [element("p", line, class_="muted") for line in self.caption()]
        shades = "Green is better and red worse than the base by more than 5%, darker by more than 20%."
        style = element("style", Html(CSS))
        lead = element(
            "p", shades, " Bold is the best of a column, underlined the second best.", class_="muted"
        )
        scroll = element("div", table, class_="scroll")
        return page(title, style, scroll, lead, *notes, lead=self.model, footer="Written by reweigh compare.")

    def to_json(self) -> dict[str, Any]:
        """Unrounded values with shades and ranks, for a program."""
        rows = []
        for i, row in enumerate(self.rows):
            cells = {
                f"{figure.group}/{figure.name}": {
                    "value": row.values[j],
                    "shade": self.shade_of(i, j),
                    "place": self.rank_of(i, j),
                }
                for j, figure in enumerate(self.figures)
            }
            rows.append({"method": row.title, "regime": row.regime, "reason": row.reason, "figures": cells})
        return {"model": self.model, "rows": rows, "notes": self.caption()}

    def terminal(self) -> RichTable:
        """A table for a rich console."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=SIMPLE_HEAD, pad_edge=False, caption="\n".join(self.caption()), caption_justify="left"
        )
        table.add_column(self.model)
        for figure in self.figures:
            table.add_column(Text(figure.heading), justify="right")
        for i, row in enumerate(self.rows):
            cells = []
            for j, figure in enumerate(self.figures):
                emphasis = {"best": "bold", "second": "underline", "": ""}[self.rank_of(i, j)]
                cells.append(
                    Text(figure.show(row.values[j]), f"{STYLES[self.shade_of(i, j)]} {emphasis}".strip())
                )
            table.add_row(row.title, *cells)
        return table


def cost_figures() -> list[Figure]:
    """The two columns of cost, as ratios to greedy."""
    return [
        Figure("Cost", "Lat.", "lower", unit="×", ranked=False),
        Figure("Cost", "Mem.", "lower", unit="×", ranked=False),
    ]


def ratios(own: Mapping[str, float | None], base: Mapping[str, float | None]) -> list[float | None]:
    """Latency and memory over the base's."""
    found: list[float | None] = []
    for name in ("latency", "memory"):
        mine, its = own.get(name), base.get(name)
        found.append(None if mine is None or not its else mine / its)
    return found


def _arrow(figure: Figure) -> str:
    return {"lower": r"$\downarrow$", "higher": r"$\uparrow$", None: ""}[figure.better]


def _pipe(text: str) -> str:
    return text.replace("|", "\\|")


_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_SPECIAL |= {letter: "\\" + letter for letter in "&%$#_{}"}


def _tex(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)
