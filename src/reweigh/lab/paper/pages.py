"""The paper beside what was measured: for each table and figure what was run, on what, both numbers, and their order.

A measured number never appears under a published model's name: its column is headed by the model it was measured on, and
the page first names the models that are not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reweigh.files.outputs import claim, write_sealed_output
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.folder import Significant, add_drawings
from reweigh.lab.paper.measured import Measured
from reweigh.lab.paper.published import Order, Published, published
from reweigh.lab.paper.study import Entries, Entry
from reweigh.lab.views.html import part
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Cell, Column, Table

INDEX, DATA = "index.html", "paper.json"
SHOWN = 12
"""Disagreeing orders that the page lists for a table."""


def claim_paper(out: Path) -> None:
    """Refuse a folder with other files under the names of the page and its data."""
    claim([out / INDEX, out / DATA])


def write_paper(found: Mapping[str, Measured], out: Path) -> dict[str, Any]:
    """Write the page and its data; return the data."""
    data = {label: build_json(table, found.get(label)) for label, table in published().items()}
    claim_paper(out)
    build_page(found).write(out / INDEX)
    write_sealed_output(out / DATA, data)
    return data


def compare(table: Published, measured: Measured | None) -> tuple[str | None, list[Order]]:
    """Return the paper's model that a measurement is compared with, and all comparisons of order."""
    if measured is None or not measured.values:
        return None, []
    reference = table.reference(measured.model)
    return reference, [] if reference is None else table.orders(table.values[reference], measured.values)


def build_page(found: Mapping[str, Measured]) -> Page:
    """Return a list of all tables and figures, then a section for each."""
    lead = (
        "Published values are the paper's: 7B models and larger on photographs. Measured values appear under the name "
        "of the model they were measured on."
    )
    page = Page("The paper, table by table", lead=lead, footer="Written by reweigh study --paper.")
    published_models = {model for table in published().values() for model in table.values}
    for model in sorted({one.model for one in found.values()} - published_models):
        words = (
            f"{model} is not one of the paper's models and was measured on other images. Compare orders and signs, not "
            "sizes: its differences to the paper's numbers are between different models."
        )
        page.add(part("strong", words))
    rows = [[label, table.title, *state(table, found.get(label))] for label, table in published().items()]
    links = {index: f"#{label}" for index, label in enumerate(published())}
    columns = [Column(name) for name in ("label", "title", "state", "order")]
    page.table(Table(columns, rows, links=links), fold=len(rows))
    drawn: set[Path] = set()
    for label, table in published().items():
        measured = found.get(label)
        page.section(table.title, anchor=label)
        page.text(f"{table.kind.capitalize()} {label} of the paper.", muted=True)
        _add_source(page, table, measured)
        _add_numbers(page, table, measured)
        if measured is None:
            continue
        page.text(*measured.sentences)
        if measured.folder is not None and measured.folder not in drawn:
            drawn.add(measured.folder)
            caption = f"Measured: {measured.model}, {measured.on}."
            add_drawings(page, measured.folder, alt=table.title, caption=caption)
    return page


def state(table: Published, measured: Measured | None) -> tuple[str, str]:
    """Say whether a table was measured, and whether the orders agree."""
    if measured is not None:
        _, found = compare(table, measured)
        verdict = f"{sum(order.agrees for order in found)} of {len(found)} agree"
        if not found:
            verdict = "nothing to compare" if measured.values else "drawn"
        return f"measured on {measured.model}", verdict
    if table.run:
        return "not run", ""
    return ("no command measures it" if table.not_measured else "nothing to measure"), ""


def _add_source(page: Page, table: Published, measured: Measured | None) -> None:
    """Say what was published on what, and what was run here, or how to run it."""
    if table.values:
        on = f"; {table.on}" if table.on else ""
        page.text(f"Published: {', '.join(table.values)}{on}.")
    else:
        page.text("It contains no measured numbers.")
    if measured is not None:
        page.text(f"Measured: {measured.model}; {measured.on}; by {measured.by}.")
    elif table.run:
        page.text("Not run. To measure it:").add(part("code", table.run))
    elif table.not_measured:
        page.text(f"Not measured: {table.not_measured}.")


def _add_numbers(page: Page, table: Published, measured: Measured | None) -> None:
    """Put the measured value, under its own model's name, beside the published ones, and compare their orders."""
    if not table.values:
        return
    reference, found = compare(table, measured)
    own: Entries = measured.values if measured is not None else {}
    columns: list[Column] = [Column("metric"), Column("row")]
    columns += [Significant(f"published: {model}") for model in table.values]
    if measured is not None and own:
        columns.append(Significant(f"measured: {measured.model}"))
        columns += [Significant(f"difference to {reference}", signed=True)] if reference else []
    rows: list[list[Cell]] = []
    for entry in entries(table, own):
        cells = [entry.metric, entry.row, *(_cell(values.get(entry)) for values in table.values.values())]
        if own:
            cells.append(_cell(own.get(entry), "not run"))
            if reference:
                both = (own, table.values[reference])
                here, said = (values.get(entry, Estimate(None)).value for values in both)
                cells.append(None if here is None or said is None else here - said)
        rows.append(cells)
    page.table(Table(columns, rows, f"Published and measured values: {table.title}"))
    if found:
        wrong = [str(order) for order in found if not order.agrees]
        words = f"{len(found) - len(wrong)} of {len(found)} comparisons of point estimates come out as for {reference}"
        page.text(f"Order: {words}{'; these do not:' if wrong else '.'}")
        more = [f"and {len(wrong) - SHOWN} more"] if len(wrong) > SHOWN else []
        page.add(part("bullets", [*wrong[:SHOWN], *more]))


def _cell(value: Estimate | None, missing: str | None = None) -> Cell:
    if value is None:
        return missing
    return value if value.bounded else value.value


def entries(table: Published, own: Entries) -> list[Entry]:
    """List the entries of both sides by metric, in the paper's order; measured rows that it does not have come last."""
    known = {entry for values in (*table.values.values(), own) for entry in values}
    rows = dict.fromkeys([*table.rows, *(entry.row for entry in own)])
    return [Entry(row, metric) for metric in table.metrics for row in rows if Entry(row, metric) in known]


def build_json(table: Published, measured: Measured | None) -> dict[str, Any]:
    """Return one table or figure as plain JSON."""
    reference, found = compare(table, measured)
    about = None
    if measured is not None:
        values = _values(measured.values)
        about = {"model": measured.model, "on": measured.on, "by": measured.by, "values": values}
    return {
        "title": table.title,
        "published": {model: _values(numbers) for model, numbers in table.values.items()},
        "published_on": table.on,
        "measured": about,
        "compared_with": reference,
        "orders": {"compared": len(found), "agree": sum(order.agrees for order in found)},
        "differ": [str(order) for order in found if not order.agrees],
        "run": list(table.run),
    }


def _values(values: Entries) -> list[dict[str, Any]]:
    return [
        {**entry._asdict(), "value": value.value, "low": value.low, "high": value.high}
        for entry, value in values.items()
    ]
