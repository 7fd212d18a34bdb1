"""The page of a comparison: figures, differences to the base, quality against cost, examples and links to the runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

from reweigh.experiments.compare.render import PAIRED, differences_table, figures_table
from reweigh.experiments.compare.table import COST, Comparison
from reweigh.results.charts import Point, in_words, points
from reweigh.results.html import Html, element, join
from reweigh.results.page import Page
from reweigh.runs.record import REPORT

PLOTTED = ("CHAIR_I", "distinct CHAIR_I", "F1")
"""Figures that are drawn over cost, where a comparison has them."""


def html(made: Comparison, examples: Sequence[Html] = (), title: str = "Comparison of decoders") -> str:
    """A page that needs no other file but, for its links, the runs beside it."""
    page = Page(title, lead=made.model, footer="Written by reweigh compare.")
    page.section("Figures").add(*tables(made))
    _add_quality_against_cost(page, made)
    page.add(*examples)
    if any(row.runs for row in made.rows):
        page.section("Runs").add(_runs(made))
    return page.html()


def tables(made: Comparison) -> list[Html]:
    """The figures with their legend and notes, then the differences to the base, for a page."""
    shades = element(
        "p",
        element("span", "▲ blue", class_="better"),
        " is better, ",
        element("span", "▼ red", class_="worse"),
        " is worse. Bold is the best of a column, underlined the second best.",
        class_="muted",
    )
    notes = [element("p", line, class_="muted") for line in [made.legend(), *made.caption()]]
    parts = [figures_table(made).html(), shades, *notes]
    if (compared := differences_table(made)) is not None:
        parts += [element("h3", PAIRED), compared.html()]
    return parts


def _runs(made: Comparison) -> Html:
    """Links to the page of every run."""
    items = []
    for row in made.rows:
        links = [element("a", name, href=quote(f"{folder}/{REPORT}")) for name, folder in row.runs.items()]
        if links:
            items.append(element("li", f"{row.title}: ", join(links, ", ")))
    words = "All answers of a method with their scores, examples and the record of what they depend on:"
    return join([element("p", words, class_="muted"), element("ul", *items)])


def _add_quality_against_cost(page: Page, made: Comparison) -> None:
    """Hallucination over latency and, where recall is known, quality as a whole over latency."""
    cost = next((j for j, one in enumerate(made.figures) if (one.group, one.name) == (COST, "Lat.")), None)
    if cost is None:
        return
    names = [one.name for one in made.figures]
    chosen = [names.index(wanted) for wanted in PLOTTED if wanted in names] or [0]
    chief, begun = made.chief(), False
    for quality in chosen:
        one = made.figures[quality]
        drawn = [
            Point(row.title.partition(" (")[0], row.interval(cost) or row.values[cost], up, row is chief)
            for row in made.rows
            if row.values[cost] is not None
            and (up := row.interval(quality) or row.values[quality]) is not None
        ]
        if len(drawn) < 2:
            continue
        if not begun:
            page.section("Quality against cost")
            begun = True
        better = f"{one.better} is better, " if one.better else ""
        page.chart(
            partial(_scatter, drawn, one.name),
            f"{one.name} over cost: {better}further left is cheaper; lines are 95% intervals.",
            alt=in_words(f"{one.name} over cost", {point.name: point.y for point in drawn}, 2),
            height=3.8,
        )


def _scatter(drawn: Sequence[Point], up: str, panel: Any, narrow: bool) -> None:
    points(panel, drawn, across="time per token, times greedy's", up=up)
