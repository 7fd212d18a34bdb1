"""The page of a study folder: contents, then each study's sentences, figure and table, and the record at the end.

Needs no other file: figures and pictures are embedded. Only finished studies are shown.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.paper.study import FIGURE, FRAGMENT, Outcome
from reweigh.results.html import Html, element
from reweigh.results.page import Page
from reweigh.results.table import MISSING, Cell, Column, Table

REPORT = "report.html"


@dataclass(frozen=True, slots=True)
class Significant(Column):
    """A column whose numbers have four significant digits, whole ones none after the point."""

    def number(self, value: float | None) -> str:
        """Format a number of this column.

        Example:
            >>> [Significant("x").number(value) for value in (2580.0, 0.00324809, -1.23456)]
            ['2,580', '0.003248', '-1.235']
        """
        if value is None:
            return MISSING
        return f"{int(value):,}" if float(value).is_integer() else f"{value:.4g}"


def tidy_table(outcome: Outcome) -> Table:
    """The frame of a study as a table, without keys that are empty in every row."""
    used = [name for name in outcome.frame.keys if any(row[name] not in (None, "") for row in outcome.frame)]
    columns = [Significant(name.replace("_", " ")) for name in (*used, "value")]
    rows: list[list[Cell]] = [[*(row[name] for name in used), row.estimate] for row in outcome.frame]
    return Table(columns, rows)


def write_report(folder: Path, outcomes: Sequence[Outcome], record: Mapping[str, Any]) -> Path:
    """Write the page of some studies into their folder."""
    images = record["images"]
    lead = (
        f"{record['identity'].get('model_id') or 'a model'}, layer {record['layer']}, beta {record['beta']:g}: "
        f"{images['evaluation']:,} evaluation and {images['calibration']:,} calibration images. Brackets are 95% bootstrap "
        f"intervals over images, {record['resamples']:,} draws, seed {record['seed']}."
    )
    page = Page("The paper's analyses", lead=lead, footer="Written by reweigh study.").add(contents(outcomes))
    for outcome in outcomes:
        add_study(page, folder / outcome.study.name, outcome)
    short = {name: value for name, value in record.items() if name != "identity"}
    page.section("Record", anchor="record").record(short, "Settings").record(
        record["identity"], "Identity of the model"
    )
    return page.write(folder / REPORT)


def contents(outcomes: Sequence[Outcome]) -> Html:
    """Links to the sections."""
    items = []
    for one in outcomes:
        words = one.study.place() if one.unmet is None else "not computed"
        link = element("a", one.study.title, href=f"#{one.study.name}")
        items.append(element("li", link, " ", element("span", words, class_="muted")))
    items.append(element("li", element("a", "Record", href="#record")))
    return element("nav", element("h2", "Contents"), element("ol", *items), class_="contents")


def add_study(page: Page, folder: Path, outcome: Outcome) -> None:
    """Add one study: sentences, figure, whatever else it wrote, table."""
    study = outcome.study
    page.section(study.title, anchor=study.name).text(study.place(), muted=True).text(*outcome.sentences)
    if outcome.unmet is not None:
        return
    if (drawing := folder / f"{FIGURE}.svg").is_file():
        alt = f"Figure: {study.title}. {' '.join(outcome.sentences)}".strip()
        page.add(element("figure", embedded_svg(drawing, alt=alt)))
    if (further := folder / FRAGMENT).is_file():
        page.add(Html(further.read_text(encoding="utf-8")))
    page.table(tidy_table(outcome))
    page.text("; ".join(f"{name}: {what}" for name, what in study.keys) + ".", muted=True)


def embedded_svg(path: Path, *, alt: str) -> Html:
    """A drawing as part of the page."""
    data = base64.b64encode(path.read_bytes()).decode("ascii")
    return element("img", src=f"data:image/svg+xml;base64,{data}", alt=alt, class_="drawing")
