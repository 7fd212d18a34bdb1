"""A comparison as text: Markdown, LaTeX and a terminal, each with intervals and differences to the base."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from reweigh.benchmarks.base import Metric
from reweigh.experiments.compare.table import Comparison
from reweigh.results.tables import MISSING, tex

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

TEX_SHADES = {"better": "blue!10", "better-strong": "blue!25", "worse": "red!15", "worse-strong": "red!35"}
SIGNS = {"better": " ▲", "better-strong": " ▲▲", "worse": " ▼", "worse-strong": " ▼▼", "": ""}
STYLES = {
    "better": "blue",
    "better-strong": "bold blue",
    "worse": "red",
    "worse-strong": "bold red",
    "": "",
}
PAIRED = "Difference to the base, with paired 95% image-bootstrap intervals"


def ends(metric: Metric | None, digits: int, *, signed: bool = False) -> str:
    """An interval as text; empty where there is none."""
    if metric is None or metric.low is None or metric.high is None:
        return ""
    form = f"{'+' if signed else ''}.{digits}f"
    return f"[{metric.low:{form}}, {metric.high:{form}}]"


def change(metric: Metric | None, digits: int) -> str:
    """A difference with its interval as text."""
    if metric is None or metric.value is None:
        return MISSING
    return f"{metric.value:+.{digits}f} {ends(metric, digits, signed=True)}".strip()


def markdown(made: Comparison) -> str:
    """GitHub-flavoured Markdown; shades become arrows, differences stand in a table of their own."""
    many = len({one.group for one in made.figures}) > 2
    names = [f"{one.group} {one.heading}" if many else one.heading for one in made.figures]
    lines = _head([made.model, *names])
    for i, row in enumerate(made.rows):
        cells = []
        for j, one in enumerate(made.figures):
            text, rank = one.show(row.values[j]), made.rank_of(i, j)
            text = f"**{text}**" if rank == "best" else (f"<u>{text}</u>" if rank == "second" else text)
            cells.append(
                " ".join(filter(None, (text + SIGNS[made.shade_of(i, j)], ends(row.interval(j), one.digits))))
            )
        lines.append("| " + " | ".join([_pipe(row.title), *cells]) + " |")
    lines += ["", made.legend(), *made.caption()]
    if compared := compared_columns(made):
        lines += ["", f"{PAIRED}:", ""]
        lines += _head(["", *(names[j] for j in compared)])
        for row in made.rows[1:]:
            shown = [change(row.difference(j), made.figures[j].digits) for j in compared]
            lines.append("| " + " | ".join([_pipe(row.title), *shown]) + " |")
    return "\n".join(lines) + "\n"


def _head(names: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(map(_pipe, names)) + " |", "| --- |" + " ---: |" * (len(names) - 1)]


def compared_columns(made: Comparison) -> list[int]:
    """Columns with differences to the base."""
    return [j for j in range(len(made.figures)) if any(row.difference(j) for row in made.rows[1:])]


def latex(made: Comparison) -> str:
    """A ``tabular`` in the paper's layout and one of the differences; needs booktabs, and xcolor with its table option."""
    lines = [f"% {line}" for line in [*made.caption(), made.legend()]]
    columns = range(len(made.figures))
    titles = [tex(made.model), *(rf"\quad {tex(row.title)}" for row in made.rows[1:])]
    rows = [[title, *(_tex_cell(made, i, j) for j in columns)] for i, title in enumerate(titles)]
    lines += _tabular(made, columns, rows)
    if compared := compared_columns(made):
        lines += ["", f"% {PAIRED}."]
        shown = [
            [tex(row.title), *(_tex_difference(made, i, j) for j in compared)]
            for i, row in enumerate(made.rows[1:], start=1)
        ]
        lines += _tabular(made, compared, shown)
    return "\n".join(lines) + "\n"


def _tabular(made: Comparison, columns: Sequence[int], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of cells under the figures of some columns, which are grouped."""
    spans, rules, place = [], [], 2
    for group, found in groupby(columns, key=lambda j: made.figures[j].group):
        width = len(list(found))
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{tex(group)}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    lines = [rf"\begin{{tabular}}{{l{'c' * len(columns)}}}", r"\toprule"]
    lines += ["& " + " & ".join(spans) + r" \\", "".join(rules)]
    lines.append(
        f"{made.kind.capitalize()} & " + " & ".join(tex(made.figures[j].heading) for j in columns) + r" \\"
    )
    lines.append(r"\midrule")
    lines += [" & ".join(cells) + r" \\" for cells in rows]
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _tex_difference(made: Comparison, i: int, j: int) -> str:
    text = tex(change(made.rows[i].difference(j), made.figures[j].digits))
    colour = TEX_SHADES.get(made.shade_of(i, j))
    return rf"\cellcolor{{{colour}}}{text}" if colour else text


def _tex_cell(made: Comparison, i: int, j: int) -> str:
    one, row = made.figures[j], made.rows[i]
    text = tex(one.show(row.values[j])).replace("×", r"$\times$")
    rank, colour = made.rank_of(i, j), TEX_SHADES.get(made.shade_of(i, j))
    text = rf"\textbf{{{text}}}" if rank == "best" else text
    text = rf"\underline{{{text}}}" if rank == "second" else text
    if interval := ends(row.interval(j), one.digits):
        text += rf" {{\scriptsize {interval}}}"
    return rf"\cellcolor{{{colour}}}{text}" if colour else text


def terminal(made: Comparison, width: int | None = None) -> Group:
    """Tables for a rich console of that width: figures with intervals, then differences, columns in parts that fit.

    Every part begins with the methods' names, which are never cut.
    """
    from rich.console import Group
    from rich.text import Text

    rows = range(len(made.rows))
    figures = [[Text(one.heading), *(_text(made, i, j) for i in rows)] for j, one in enumerate(made.figures)]
    tables = _parts(made.kind, [row.title for row in made.rows], figures, width)
    if compared := compared_columns(made):
        columns = [
            [Text(made.figures[j].heading), *(Text(change(row.difference(j), 1)) for row in made.rows[1:])]
            for j in compared
        ]
        tables.append(Text(f"{PAIRED}:"))
        tables += _parts(made.kind, [row.title for row in made.rows[1:]], columns, width)
    return Group(Text(made.model), *tables, Text("\n".join([made.legend(), *made.caption()])))


def _parts(
    kind: str, titles: Sequence[str], columns: Sequence[Sequence[Text]], width: int | None
) -> list[RichTable | Text]:
    """Columns of cells, each with its heading, in as many tables as their width asks for."""
    longest = max(map(len, [kind, *titles]))
    room = None if width is None else width - longest - 2
    parts: list[list[Sequence[Text]]] = [[]]
    for column in columns:
        if room is not None and parts[-1] and sum(map(_wide, [*parts[-1], column])) > room:
            parts.append([])
        parts[-1].append(column)
    return [_part(kind, titles, part) for part in parts]


def _wide(column: Sequence[Text]) -> int:
    """How many characters a column takes, with the space beside it."""
    return 3 + max(cell.cell_len for cell in column)


def _part(kind: str, titles: Sequence[str], columns: Sequence[Sequence[Text]]) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind, no_wrap=True, min_width=max(map(len, [kind, *titles])))
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for i, title in enumerate(titles, start=1):
        table.add_row(Text(title), *(column[i] for column in columns))
    return table


def _text(made: Comparison, i: int, j: int) -> Text:
    from rich.text import Text

    row, one = made.rows[i], made.figures[j]
    emphasis = {"best": "bold", "second": "underline", "": ""}[made.rank_of(i, j)]
    shown = made.shade_of(i, j)
    text = Text(one.show(row.values[j]) + SIGNS[shown], f"{STYLES[shown]} {emphasis}".strip())
    if interval := ends(row.interval(j), 1):
        text.append(f" {interval}", style="dim not bold not underline")
    return text


def _pipe(text: str) -> str:
    return text.replace("|", "\\|")
