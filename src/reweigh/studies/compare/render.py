"""A comparison for people: Markdown, LaTeX, a page and a terminal, each with intervals and differences to the base."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from reweigh.benchmarks.base import Metric
from reweigh.report.html import Html, element, figure, page, section
from reweigh.report.plots import scatter_plot
from reweigh.report.tables import MISSING, tex
from reweigh.studies.compare.table import COST, Comparison

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
CSS = """
td.better { background: var(--good-wash); } td.better-strong { background: var(--good-wash); font-weight: 600; }
td.worse { background: var(--bad-wash); } td.worse-strong { background: var(--bad-wash); font-weight: 600; }
td.second { text-decoration: underline; text-underline-offset: .25em; }
th.group { text-align: center; border-bottom: 1px solid var(--line); }
"""
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
    if compared := _compared(made):
        lines += ["", f"{PAIRED}:", ""]
        lines += _head(["", *(names[j] for j in compared)])
        for row in made.rows[1:]:
            shown = [change(row.difference(j), made.figures[j].digits) for j in compared]
            lines.append("| " + " | ".join([_pipe(row.title), *shown]) + " |")
    return "\n".join(lines) + "\n"


def _head(names: Sequence[str]) -> list[str]:
    return ["| " + " | ".join(map(_pipe, names)) + " |", "| --- |" + " ---: |" * (len(names) - 1)]


def _compared(made: Comparison) -> list[int]:
    """Columns with differences to the base."""
    return [j for j in range(len(made.figures)) if any(row.difference(j) for row in made.rows[1:])]


def latex(made: Comparison) -> str:
    """A ``tabular`` in the paper's layout, and one of the differences; needs booktabs, and xcolor with its table option."""
    spans, rules, column = [], [], 2
    for group, width in made.groups():
        spans.append(rf"\multicolumn{{{width}}}{{c}}{{{tex(group)}}}")
        rules.append(rf"\cmidrule(lr){{{column}-{column + width - 1}}}")
        column += width
    lines = [f"% {line}" for line in [*made.caption(), made.legend()]]
    lines += [rf"\begin{{tabular}}{{l{'c' * len(made.figures)}}}", r"\toprule"]
    lines += ["& " + " & ".join(spans) + r" \\", "".join(rules)]
    lines.append(
        f"{made.kind.capitalize()} & " + " & ".join(tex(one.heading) for one in made.figures) + r" \\"
    )
    lines.append(r"\midrule")
    for i, row in enumerate(made.rows):
        cells = [_tex_cell(made, i, j) for j in range(len(made.figures))]
        title = tex(made.model) if i == 0 else rf"\quad {tex(row.title)}"
        lines.append(f"{title} & " + " & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if compared := _compared(made):
        lines += _tex_differences(made, compared)
    return "\n".join(lines) + "\n"


def _tex_differences(made: Comparison, compared: Sequence[int]) -> list[str]:
    names = " & ".join(tex(made.figures[j].heading) for j in compared)
    lines = ["", f"% {PAIRED}.", rf"\begin{{tabular}}{{l{'c' * len(compared)}}}", r"\toprule"]
    lines += [rf"{made.kind.capitalize()} & {names} \\", r"\midrule"]
    for i, row in enumerate(made.rows[1:], start=1):
        cells = []
        for j in compared:
            text = tex(change(row.difference(j), made.figures[j].digits))
            colour = TEX_SHADES.get(made.shade_of(i, j))
            cells.append(rf"\cellcolor{{{colour}}}{text}" if colour else text)
        lines.append(f"{tex(row.title)} & {' & '.join(cells)} " + r"\\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


def _tex_cell(made: Comparison, i: int, j: int) -> str:
    one, row = made.figures[j], made.rows[i]
    text = tex(one.show(row.values[j])).replace("×", r"$\times$")
    rank, colour = made.rank_of(i, j), TEX_SHADES.get(made.shade_of(i, j))
    text = rf"\textbf{{{text}}}" if rank == "best" else text
    text = rf"\underline{{{text}}}" if rank == "second" else text
    if interval := ends(row.interval(j), one.digits):
        text += rf" {{\scriptsize {interval}}}"
    return rf"\cellcolor{{{colour}}}{text}" if colour else text


def html(made: Comparison, title: str = "Comparison of decoders") -> str:
    """A page that needs no other file."""
    parts = tables(made)
    if (drawn := _quality_against_cost(made)) is not None:
        parts.append(section("Quality against cost", drawn))
    return page(title, *parts, lead=made.model, footer="Written by reweigh compare.")


def tables(made: Comparison) -> list[Html]:
    """The figures with their legend and notes, then the differences to the base, for a page."""
    parts = [element("style", Html(CSS)), _table(made), element("p", made.legend(), class_="muted")]
    parts.append(element("p", "Bold is the best of a column, underlined the second best.", class_="muted"))
    parts += [element("p", line, class_="muted") for line in made.caption()]
    if compared := _compared(made):
        words = f"{made.kind.capitalize()} minus base, with paired 95% image-bootstrap intervals."
        parts.append(
            section(
                "Difference to the base", element("p", words, class_="muted"), _differences(made, compared)
            )
        )
    return parts


def _table(made: Comparison) -> Html:
    spans = [
        element("th", group, colspan=width, class_="group", scope="colgroup")
        for group, width in made.groups()
    ]
    top = element("tr", element("td", ""), *spans)
    names = [element("th", one.heading, scope="col") for one in made.figures]
    head = element("tr", element("th", made.kind.capitalize(), scope="col"), *names)
    body = []
    for i, row in enumerate(made.rows):
        cells = [element("th", row.title, scope="row", title=row.regime or None)]
        for j, one in enumerate(made.figures):
            kind = " ".join(part for part in (made.shade_of(i, j), made.rank_of(i, j)) if part)
            shown = one.show(row.values[j]) + SIGNS[made.shade_of(i, j)]
            interval = ends(row.interval(j), one.digits)
            extra = [element("span", interval, class_="range")] if interval else []
            cells.append(element("td", shown, *extra, class_=kind or None))
        body.append(element("tr", *cells))
    table = element("table", element("thead", top, head), element("tbody", *body))
    label = f"Figures of every {made.kind}"
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _differences(made: Comparison, compared: Sequence[int]) -> Html:
    names = [element("th", made.figures[j].heading, scope="col") for j in compared]
    head = element("tr", element("th", made.kind.capitalize(), scope="col"), *names)
    body = []
    for i, row in enumerate(made.rows[1:], start=1):
        cells = [element("th", row.title, scope="row")]
        for j in compared:
            kind = made.shade_of(i, j) or None
            cells.append(element("td", change(row.difference(j), made.figures[j].digits), class_=kind))
        body.append(element("tr", *cells))
    table = element("table", element("thead", head), element("tbody", *body))
    return element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label="Differences to the base"
    )


def _quality_against_cost(made: Comparison) -> Html | None:
    """Each method's first figure of hallucination over its latency."""
    cost = next((j for j, one in enumerate(made.figures) if (one.group, one.name) == (COST, "Lat.")), None)
    quality = next((j for j, one in enumerate(made.figures) if one.name == "CHAIR_I"), 0)
    if cost is None:
        return None
    points = [
        (row.title, x, y)
        for row in made.rows
        if (x := row.values[cost]) is not None and (y := row.values[quality]) is not None
    ]
    if len(points) < 2:
        return None
    name = made.figures[quality].heading
    return figure(
        scatter_plot(points, across="time per token, times greedy's", up=name),
        f"{name} over cost; further left is cheaper.",
    )


def terminal(made: Comparison, width: int | None = None) -> Group:
    """Tables for a rich console of that width: intervals below their values if there is room, columns in parts if not.

    Every part begins with the methods' names, which are never cut.
    """
    from rich.console import Group
    from rich.text import Text

    columns = range(len(made.figures))
    longest = max(len(made.kind), *(len(row.title) for row in made.rows))
    room = None if width is None else width - longest - 2
    cells = [_cells(made, j, intervals=True) for j in columns]
    roomy = room is None or sum(map(_wide, cells)) <= room
    if not roomy:
        cells = [_cells(made, j, intervals=False) for j in columns]
    note = [] if roomy else ["Intervals and differences need a wider terminal; the written tables have them."]
    parts: list[list[int]] = [[]]
    for j in columns:
        if room is not None and parts[-1] and sum(_wide(cells[k]) for k in [*parts[-1], j]) > room:
            parts.append([])
        parts[-1].append(j)
    titles = [row.title for row in made.rows]
    tables = [_part(made.kind, titles, [cells[j] for j in part]) for part in parts]
    words = "\n".join([made.legend(), *made.caption(), *note])
    return Group(Text(made.model), *tables, Text(words))


def _cells(made: Comparison, j: int, *, intervals: bool) -> list[Text]:
    """A column: its heading and its cells."""
    from rich.text import Text

    rows = range(len(made.rows))
    return [Text(made.figures[j].heading), *(_text(made, i, j, intervals=intervals) for i in rows)]


def _wide(column: Sequence[Text]) -> int:
    """How many characters a column takes, with the space beside it."""
    return 3 + max(line.cell_len for cell in column for line in cell.split("\n", allow_blank=True))


def _part(kind: str, titles: Sequence[str], columns: Sequence[Sequence[Text]]) -> RichTable:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column(kind, no_wrap=True, min_width=max(map(len, (kind, *titles))))
    for heading, *_ in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for i, title in enumerate(titles, start=1):
        table.add_row(Text(title), *(column[i] for column in columns))
    return table


def _text(made: Comparison, i: int, j: int, *, intervals: bool) -> Text:
    from rich.text import Text

    row, one = made.rows[i], made.figures[j]
    emphasis = {"best": "bold", "second": "underline", "": ""}[made.rank_of(i, j)]
    shown = made.shade_of(i, j)
    text = Text(one.show(row.values[j]) + SIGNS[shown], f"{STYLES[shown]} {emphasis}".strip())
    if not intervals:
        return text
    for extra in (
        ends(row.interval(j), 1),
        "" if row.difference(j) is None else f"Δ {change(row.difference(j), 1)}",
    ):
        if extra:
            text.append(f"\n{extra}", style="dim not bold not underline")
    return text


def _pipe(text: str) -> str:
    return text.replace("|", "\\|")
