"""A finished comparison for people: tables for files and the terminal, and a page with examples and links to the runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from reweigh.experiments.compare.examples import example_sections
from reweigh.experiments.compare.methods import TUNED
from reweigh.experiments.compare.table import COST, Comparison
from reweigh.experiments.experiment import FRAME, write_frame
from reweigh.files.outputs import claim, write_output, write_sealed_output
from reweigh.results.charts import NamedPoint, alt_text, points
from reweigh.results.html import Html, element, join
from reweigh.results.page import Page
from reweigh.results.table import Table
from reweigh.runs.record import REPORT

if TYPE_CHECKING:
    from rich.console import Group

FILES = ("comparison.md", "comparison.html", "comparison.tex", "comparison.json")
PAIRED = "Difference to the base, with paired 95% image-bootstrap intervals"
PLOTTED = ("CHAIR_I", "distinct CHAIR_I", "F1")
"""Figures that are drawn over cost, if a comparison has them."""


def claim_files(out: Path, *, force: bool = False) -> None:
    """Refuse a folder with files of others under the names that a comparison writes."""
    claim([out / name for name in (*FILES, FRAME)], force=force, beside=out / FILES[-1])


def write(made: Comparison, out: Path, parts: Sequence[Html] = ()) -> list[Path]:
    """Write the tables, the page with further parts and examples of the runs, and the numbers; returns the files."""
    markdown_file, page, latex_file, numbers = files = [out / name for name in FILES]
    claim_files(out)
    write_output(markdown_file, markdown(made))
    write_output(page, html(made, parts))
    write_output(latex_file, latex(made))
    write_sealed_output(numbers, made.to_json())
    return [*files, write_frame(made.frame, out)]


def markdown(made: Comparison) -> str:
    """Both tables as GitHub-flavoured Markdown, with the notes."""
    notes = "\n".join([made.legend(), *made.caption()]) + "\n"
    parts = [f"{made.model}\n", made.figures.markdown(), notes]
    if made.differences is not None:
        parts += [f"{PAIRED}:\n", made.differences.markdown()]
    return "\n".join(parts)


def latex(made: Comparison) -> str:
    """Both tables as ``tabular``; needs booktabs, and xcolor with its table option."""
    notes = [f"% {line}" for line in [made.model, *made.caption(), made.legend()]]
    parts = ["\n".join(notes), made.figures.latex()]
    if made.differences is not None:
        parts += [f"% {PAIRED}.", made.differences.latex()]
    return "\n".join(parts)


def terminal(made: Comparison) -> Group:
    """Both tables for a rich console, with the notes."""
    from rich.console import Group
    from rich.text import Text

    compared: list[Text | Table] = [] if made.differences is None else [Text(f"{PAIRED}:"), made.differences]
    notes = Text("\n".join([made.legend(), *made.caption()]))
    return Group(Text(made.model), made.figures, *compared, notes)


def html(made: Comparison, parts: Sequence[Html] = ()) -> str:
    """A page that needs no other file but, for its links, the runs beside it; ``parts`` come before the examples."""
    page = Page("Comparison of decoders", lead=made.model, footer="Written by reweigh compare.")
    page.section("Figures").add(*tables(made))
    _add_quality_against_cost(page, made)
    page.add(*parts, *example_sections(made))
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
    parts = [made.figures.html(), shades, *notes]
    if made.differences is not None:
        parts += [element("h3", PAIRED), made.differences.html()]
    return parts


def _runs(made: Comparison) -> Html:
    """Links to the page of every run."""
    items = []
    for row in made.rows:
        links = [element("a", name, href=quote(f"{folder}/{REPORT}")) for name, folder in row.runs.items()]
        if links:
            items.append(element("li", f"{row.title}: ", join(links, ", ")))
    words = "Each method's answers with scores, examples and a record of its settings:"
    return join([element("p", words, class_="muted"), element("ul", *items)])


def _add_quality_against_cost(page: Page, made: Comparison) -> None:
    """Draw hallucination and, where recall is known, F1 over latency."""
    names = [one.name for one in made.columns]
    cost = next((j for j, one in enumerate(made.columns) if (one.group, one.name) == (COST, "Lat.")), None)
    if cost is None:
        return
    chief, begun = made.chief(), False
    for quality in [names.index(wanted) for wanted in PLOTTED if wanted in names] or [0]:
        one = made.columns[quality]
        drawn = [
            NamedPoint(_short(row.title), row.interval(cost) or row.values[cost], up, row is chief)
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
            alt=alt_text(f"{one.name} over cost", {point.name: point.y for point in drawn}, 2),
            height=3.8,
        )


def _short(title: str) -> str:
    """A method's name for a drawing: without the words in brackets, unless they tell two of its rows apart."""
    name, _, label = title.partition(" (")
    return f"{name} {TUNED}" if label.endswith(f"{TUNED})") else name


def _scatter(drawn: Sequence[NamedPoint], up: str, panel: Any, narrow: bool) -> None:
    points(panel, drawn, across="time per token, times greedy's", up=up)
