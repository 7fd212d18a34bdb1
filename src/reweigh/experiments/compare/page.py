"""The page of a comparison: figures, differences to the base, quality against cost, examples and links to the runs."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from reweigh.experiments.compare.render import SIGNS, compared_columns, ends
from reweigh.experiments.compare.table import COST, Comparison, Row
from reweigh.results.html import Html, at_every_width, element, escape, figure, join, page, section
from reweigh.results.scatter import Point, scatter_plot
from reweigh.results.tables import MISSING
from reweigh.runs.record import REPORT

CSS = """
.better, .better-strong { background: var(--good-wash); } .worse, .worse-strong { background: var(--bad-wash); }
span.better, span.worse { padding: .05em .3em; border-radius: .25em; color: var(--ink); }
td.second b { text-decoration: underline; text-underline-offset: .25em; } td b { font-weight: inherit; }
h3 { margin-top: 1.6rem; }
th.group { text-align: center; border-bottom: 1px solid var(--line); }
.figures td, .figures th { padding: .4rem .55rem; vertical-align: top; }
.figures tbody th { white-space: normal; min-width: 6.5rem; max-width: 11rem; }
.figures .range { display: block; margin: 0; font-size: .76rem; }
"""
PLOTTED = ("CHAIR_I", "distinct CHAIR_I", "F1")
"""Figures that are drawn over cost, where a comparison has them."""


def html(made: Comparison, examples: Sequence[Html] = (), title: str = "Comparison of decoders") -> str:
    """A page that needs no other file but, for its links, the runs beside it."""
    parts = [section("Figures", *tables(made))]
    if drawn := _quality_against_cost(made):
        parts.append(section("Quality against cost", *drawn))
    parts += examples
    if any(row.runs for row in made.rows):
        parts.append(section("Runs", _runs(made)))
    return page(title, *parts, lead=made.model, footer="Written by reweigh compare.")


def tables(made: Comparison) -> list[Html]:
    """The figures with their legend and notes, then the differences to the base, for a page."""
    parts = [element("style", Html(CSS)), _table(made), *_explained(made)]
    if compared := compared_columns(made):
        words = f"{made.kind.capitalize()} minus base, with paired 95% image-bootstrap intervals."
        parts += [element("h3", "Difference to the base"), element("p", words, class_="muted")]
        parts.append(_differences(made, compared))
    return parts


def _explained(made: Comparison) -> list[Html]:
    """The legend of the table in its own colours, and what a reader must know."""
    shades = element(
        "p",
        element("span", "▲ blue", class_="better"),
        " is better, ",
        element("span", "▼ red", class_="worse"),
        " is worse. Bold is the best of a column, underlined the second best.",
        class_="muted",
    )
    lines = [made.legend(), *made.caption()]
    return [shades, *(element("p", line, class_="muted") for line in lines)]


def _runs(made: Comparison) -> Html:
    """Links to the page of every run."""
    items = [
        element(
            "li",
            f"{row.title}: ",
            join(
                [element("a", name, href=quote(f"{folder}/{REPORT}")) for name, folder in row.runs.items()],
                ", ",
            ),
        )
        for row in made.rows
        if row.runs
    ]
    words = "All answers of a method with their scores, examples and the record of what they depend on:"
    return join([element("p", words, class_="muted"), element("ul", *items)])


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
        cells = [element("th", _linked(row), scope="row", title=row.regime or None)]
        for j, one in enumerate(made.figures):
            kind = " ".join(part for part in (made.shade_of(i, j), made.rank_of(i, j)) if part)
            shown = element("b", one.show(row.values[j]) + SIGNS[made.shade_of(i, j)])
            interval = ends(row.interval(j), 1)
            extra = [element("span", interval, class_="range")] if interval else []
            cells.append(element("td", shown, *extra, class_=kind or None))
        body.append(element("tr", *cells))
    table = element("table", element("thead", top, head), element("tbody", *body), class_="figures")
    return element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label=f"Figures of every {made.kind}"
    )


def _linked(row: Row) -> Html:
    """A method's title, as a link where it has one run."""
    if len(row.runs) != 1:
        return escape(row.title)
    return element("a", row.title, href=quote(f"{next(iter(row.runs.values()))}/{REPORT}"))


def _differences(made: Comparison, compared: Sequence[int]) -> Html:
    names = [element("th", made.figures[j].heading, scope="col") for j in compared]
    head = element("tr", element("th", made.kind.capitalize(), scope="col"), *names)
    body = []
    for i, row in enumerate(made.rows[1:], start=1):
        cells = [element("th", row.title, scope="row")]
        for j in compared:
            kind, found = made.shade_of(i, j) or None, row.difference(j)
            shown = MISSING if found is None or found.value is None else f"{found.value:+.2f}"
            interval = element("span", ends(found, 1, signed=True), class_="range")
            cells.append(element("td", shown, interval, class_=kind))
        body.append(element("tr", *cells))
    table = element("table", element("thead", head), element("tbody", *body), class_="figures")
    return element(
        "div", table, class_="scroll", tabindex="0", role="region", aria_label="Differences to the base"
    )


def _quality_against_cost(made: Comparison) -> list[Html]:
    """Hallucination over latency and, where recall is known, quality as a whole over latency."""
    cost = next((j for j, one in enumerate(made.figures) if (one.group, one.name) == (COST, "Lat.")), None)
    names = [one.name for one in made.figures]
    drawn = []
    for wanted in PLOTTED if cost is not None else ():
        if wanted in names:
            drawn.append(_scatter(made, names.index(wanted), cost or 0))
    if not drawn and cost:
        drawn.append(_scatter(made, 0, cost))
    return [one for one in drawn if one is not None]


def _scatter(made: Comparison, quality: int, cost: int) -> Html | None:
    chief, one = made.chief(), made.figures[quality]
    points = [
        Point(row.title.partition(" (")[0], x, y, row is chief)
        for row in made.rows
        if (x := row.values[cost]) is not None and (y := row.values[quality]) is not None
    ]
    if len(points) < 2:
        return None
    words = {"lower": "lower is better", "higher": "higher is better", None: ""}[one.better]
    drawn = at_every_width(
        lambda width: scatter_plot(points, across="time per token, times greedy's", up=one.name, width=width)
    )
    return figure(drawn, f"{one.name} over cost: {words}, further left is cheaper.")
