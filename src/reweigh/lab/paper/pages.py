"""The paper beside what was measured: every table and figure in its own shape, on one page and as files of its own.

A model that is one of the paper's stands in the paper's rows, published above measured; any other one below them, and the
page first says which these are. What was measured on which records, and how they were scored, stands below each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.files.outputs import claim, write_sealed_output
from reweigh.lab.paper.analyses.cases import net_removal
from reweigh.lab.paper.folder import add_drawings
from reweigh.lab.paper.layouts import tables_of
from reweigh.lab.paper.measured import Measured
from reweigh.lab.paper.published import Order, Published, published
from reweigh.lab.paper.study import Entries
from reweigh.lab.runs.results import read_scored
from reweigh.lab.views.examples import example, highest
from reweigh.lab.views.html import legend, part
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Column, Table

INDEX, DATA, TABLES = "index.html", "paper.json", "tables"
SHOWN = 12
"""Disagreeing orders that the page lists for a table."""
FACES = (".md", ".tex", ".csv")
Results = Mapping[str, Sequence[Measured]]


def claim_paper(out: Path) -> None:
    """Refuse a folder with other files under the names of the page, its data and its tables."""
    claim([out / INDEX, out / DATA, *(path for label in published() for path in table_files(out, label))])


def table_files(out: Path, label: str) -> list[Path]:
    """Name the files of a table or figure."""
    return [out / TABLES / f"{label.replace(':', '-')}{face}" for face in FACES]


def write_paper(found: Results, out: Path) -> dict[str, Any]:
    """Write the page, its data, and each table as Markdown, LaTeX and CSV; return the data."""
    data = {label: build_json(table, found.get(label, ())) for label, table in published().items()}
    claim_paper(out)
    build_page(found).write(out / INDEX)
    for label, table in published().items():
        page = Page(table.title)
        shown = tables_of(table, found.get(label, ()))
        for each in shown:
            page.table(each)
        if shown:
            page.text(*sources(table, found.get(label, ())))
            for path in table_files(out, label):
                page.write(path)
    write_sealed_output(out / DATA, data)
    return data


def compare(table: Published, measured: Measured) -> tuple[str | None, list[Order]]:
    """Return the paper's model that a measurement is compared with, and all comparisons of order."""
    reference = table.reference(measured.name) if measured.values else None
    return reference, [] if reference is None else table.orders(table.values[reference], measured.values)


def build_page(found: Results) -> Page:
    """Return a list of all tables and figures, then a section for each."""
    lead = (
        "Published values are the paper's. Measured ones stand below them, or in rows of their own for models that are not "
        "the paper's. Brackets are 95% intervals."
    )
    page = Page("The paper, table by table", lead=lead, footer="Written by reweigh study --paper.")
    known = {model for table in published().values() for model in table.values}
    for model in sorted({one.name for some in found.values() for one in some} - known):
        words = (
            f"{model} is not one of the paper's models and was measured on other images. Compare orders and signs, not "
            "sizes: its differences to the paper's numbers are between different models."
        )
        page.add(part("strong", words))
    rows = [[label, table.title, *state(table, found.get(label, ()))] for label, table in published().items()]
    links = {index: f"#{label}" for index, label in enumerate(published())}
    columns = [Column(name) for name in ("label", "title", "state", "order")]
    page.table(Table(columns, rows, links=links), fold=len(rows))
    drawn: set[Path] = set()
    for label, table in published().items():
        measured = found.get(label, ())
        page.section(table.title, anchor=label)
        page.text(f"{table.kind.capitalize()} {label} of the paper.", muted=True)
        for each in tables_of(table, measured):
            page.table(each, fold=len(each.rows))
        page.text(*sources(table, measured), muted=True)
        if not measured and table.run:
            page.text("Not run. To measure it:").add(part("code", table.run))
        for one in measured:
            _add_orders(page, table, one)
            page.text(*one.sentences)
            if one.runs is not None:
                add_example(page, *one.runs)
            if one.folder is not None and one.folder not in drawn:
                drawn.add(one.folder)
                add_drawings(page, one.folder, alt=table.title, caption=f"Measured: {one.model}, {one.on}.")
    return page


def add_example(page: Page, base: Path, edited: Path) -> None:
    """Show the image with the largest net removal, or say that there is none."""
    sides = {"base": read_scored(base), "ReWEIGH": read_scored(edited)}
    removed = highest(net_removal(*(run.items for run in sides.values())))
    if not removed:
        page.text("ReWEIGH names no fewer objects that are not there on any image.")
        return
    find = sides["base"].image_finder()
    page.add(legend(), example(removed[0], list(sides.items()), find(removed[0])))


def state(table: Published, measured: Sequence[Measured]) -> tuple[str, str]:
    """Say whether a table was measured, and whether the orders agree."""
    if measured:
        found = [order for one in measured for order in compare(table, one)[1]]
        verdict = f"{sum(order.agrees for order in found)} of {len(found)} agree"
        if not found:
            verdict = "nothing to compare" if any(one.values for one in measured) else "drawn"
        return f"measured on {', '.join(one.name for one in measured)}", verdict
    if table.run:
        return "not run", ""
    return ("no command measures it" if table.not_measured else "nothing to measure"), ""


def sources(table: Published, measured: Sequence[Measured]) -> list[str]:
    """Say what was published and what was measured, on what, and how."""
    said = []
    if table.values:
        said.append(f"Published: {', '.join(table.values)}{f'; {table.on}' if table.on else ''}.")
    else:
        said.append("It contains no measured numbers.")
    for one in measured:
        name = one.name if one.name == one.model else f"{one.name} ({one.model})"
        said.append(f"Measured: {name}; {one.on}; by {one.by}.")
    if not measured and not table.run and table.not_measured:
        said.append(f"Not measured: {table.not_measured}.")
    return said


def _add_orders(page: Page, table: Published, measured: Measured) -> None:
    """Say how many comparisons come out as in the paper, and list those that do not."""
    reference, found = compare(table, measured)
    if not found:
        return
    wrong = [str(order) for order in found if not order.agrees]
    words = f"{len(found) - len(wrong)} of {len(found)} comparisons of point estimates come out as for {reference}"
    page.text(f"Order, {measured.name}: {words}{'; these do not:' if wrong else '.'}")
    more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
    if wrong:
        page.add(part("bullets", [*wrong[:SHOWN], *more]))


def build_json(table: Published, measured: Sequence[Measured]) -> dict[str, Any]:
    """Return one table or figure as plain JSON."""
    return {
        "title": table.title,
        "published": {model: _values(numbers) for model, numbers in table.values.items()},
        "published_on": table.on,
        "measured": [_measured(table, one) for one in measured],
        "run": list(table.run),
    }


def _measured(table: Published, one: Measured) -> dict[str, Any]:
    reference, found = compare(table, one)
    return {
        "model": one.model,
        "name": one.name,
        "on": one.on,
        "by": one.by,
        "values": _values(one.values),
        "compared_with": reference,
        "orders": {"compared": len(found), "agree": sum(order.agrees for order in found)},
        "differ": [str(order) for order in found if not order.agrees],
    }


def _values(values: Entries) -> list[dict[str, Any]]:
    return [
        {**entry._asdict(), "value": value.value, "low": value.low, "high": value.high}
        for entry, value in values.items()
    ]
