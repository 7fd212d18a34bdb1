"""One page per table and figure of the paper: what was run, on what, both numbers, their difference, and the order.

A measured number never appears under a published model's name: its column is headed by the model it was measured on, and a
page whose measured model is not one of the paper's says so first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.files.outputs import claim, write_sealed_output
from reweigh.paper.folder import Significant, add_drawings
from reweigh.paper.measured import Measured
from reweigh.paper.published import NOT_MEASURED, Order, Published, commands, published
from reweigh.paper.study import Entries, Entry
from reweigh.results.html import Html, element
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table

INDEX, DATA = "index.html", "paper.json"
FOOTER = "Written by reweigh study --paper."
SHOWN = 12
"""Disagreeing orders that a page lists."""


def claim_pages(out: Path) -> None:
    """Refuse a folder with files of others under the names of the pages."""
    names = [*(file_name(label) for label in published()), INDEX, DATA]
    claim([out / name for name in names], beside=out / DATA)


def write_pages(found: Mapping[str, Measured], out: Path) -> dict[str, Any]:
    """Write a page for every label, an index and the data; returns the data."""
    data = {label: build_json(table, found.get(label)) for label, table in published().items()}
    claim_pages(out)
    for label, table in published().items():
        build_page(table, found.get(label)).write(out / file_name(label))
    build_index(found).write(out / INDEX)
    write_sealed_output(out / DATA, data)
    return data


def file_name(label: str) -> str:
    """Name the page of a label."""
    return label.replace(":", "-") + ".html"


def compare(table: Published, measured: Measured | None) -> tuple[str | None, list[Order]]:
    """Return the paper's model that a measurement is compared with, and all comparisons of order."""
    if measured is None or not measured.values:
        return None, []
    reference = table.reference(measured.model)
    return reference, [] if reference is None else table.orders(table.values[reference], measured.values)


def build_page(table: Published, measured: Measured | None) -> Page:
    """Build the page of one table or figure."""
    reference, found = compare(table, measured)
    page = Page(table.title, lead=f"{table.kind.capitalize()} {table.label} of the paper.", footer=FOOTER)
    page.add(_run(table, measured))
    if measured is not None and measured.model not in table.values and table.values:
        words = (
            f"{measured.model} is not one of the paper's models and was measured on other images. Compare orders and signs, "
            "not sizes: the differences below are between different models."
        )
        page.add(element("p", element("b", words)))
    if table.values:
        page.add(_numbers(table, measured, reference).html())
    if found:
        page.add(_orders(found, str(reference)))
    if measured is not None:
        page.text(*measured.sentences)
        if measured.folder is not None:
            caption = f"Measured: {measured.model}, {measured.on}."
            add_drawings(page, measured.folder, alt=table.title, caption=caption)
    return page.add(element("p", element("a", "All tables and figures", href=INDEX)))


def _run(table: Published, measured: Measured | None) -> Html:
    """Say what was published on what, and what was run here, or how to run it."""
    lines = [element("p", "It contains no measured numbers.")]
    if table.values:
        models = ", ".join(table.values)
        on = f"; {table.on}" if table.on else ""
        lines = [element("p", element("b", "Published: "), f"{models}{on}.")]
    if measured is not None:
        told = f"{measured.model}; {measured.on}; by "
        lines.append(element("p", element("b", "Measured: "), told, element("code", measured.by), "."))
    elif run := commands(table.label):
        lines.append(element("p", element("b", "Not run. "), "To measure it:"))
        lines.append(element("pre", element("code", "\n".join(run))))
    elif table.label in NOT_MEASURED:
        lines.append(element("p", element("b", "Not measured: "), f"{NOT_MEASURED[table.label]}."))
    return element("div", *lines, class_="card")


def _numbers(table: Published, measured: Measured | None, reference: str | None) -> Table:
    """Put the measured value, under its own model's name, beside the published ones, with the difference."""
    own: Entries = measured.values if measured is not None else {}
    columns: list[Column] = [Column("metric"), Column("row")]
    columns += [Significant(f"published: {model}") for model in table.values]
    if measured is not None and own:
        columns.append(Significant(f"measured: {measured.model}"))
        columns += [Significant(f"difference to {reference}", signed=True)] if reference else []
    rows: list[list[Cell]] = []
    for entry in entries(table, own):
        cells: list[Cell] = [
            entry.metric,
            entry.row,
            *(_cell(values.get(entry)) for values in table.values.values()),
        ]
        if own:
            cells.append(_cell(own.get(entry), "not run"))
            if reference:
                both = (own, table.values[reference])
                here, said = (values.get(entry, Estimate(None)).value for values in both)
                cells.append(None if here is None or said is None else here - said)
        rows.append(cells)
    return Table(columns, rows, f"Published and measured values: {table.title}")


def _cell(value: Estimate | None, missing: str | None = None) -> Cell:
    if value is None:
        return missing
    return value if value.bounded else value.value


def entries(table: Published, own: Entries) -> list[Entry]:
    """List the entries of both sides by metric, in the paper's order; measured rows that it does not have come last."""
    known = {entry for values in (*table.values.values(), own) for entry in values}
    rows = dict.fromkeys([*table.rows, *(entry.row for entry in own)])
    return [Entry(row, metric) for metric in table.metrics for row in rows if Entry(row, metric) in known]


def _orders(found: Sequence[Order], reference: str) -> Html:
    wrong = [order for order in found if not order.agrees]
    words = f"{len(found) - len(wrong)} of {len(found)} comparisons of point estimates come out as for {reference}"
    head = element("p", element("b", "Order: "), words + ("; these do not:" if wrong else "."))
    items = [element("li", str(order)) for order in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        items.append(element("li", f"and {len(wrong) - SHOWN} more"))
    return element("div", head, *([element("ul", *items)] if items else []))


def state(table: Published, measured: Measured | None) -> tuple[str, str]:
    """Say whether a table was measured, and whether the orders agree."""
    if measured is not None:
        _, found = compare(table, measured)
        verdict = f"{sum(order.agrees for order in found)} of {len(found)} agree"
        if not found:
            verdict = "nothing to compare" if measured.values else "drawn"
        return f"measured on {measured.model}", verdict
    if commands(table.label):
        return "not run", ""
    return ("no command measures it" if table.label in NOT_MEASURED else "nothing to measure"), ""


def build_index(found: Mapping[str, Measured]) -> Page:
    """List all tables and figures, whether they were measured, and whether the orders agree."""
    rows = [[label, table.title, *state(table, found.get(label))] for label, table in published().items()]
    links = {index: file_name(label) for index, label in enumerate(published())}
    table = Table([Column(name) for name in ("label", "title", "state", "order")], rows, links=links)
    lead = (
        "Published values are the paper's: 7B models and larger on photographs. Measured values appear under the name "
        "of the model they were measured on."
    )
    return Page("The paper, table by table", lead=lead, footer=FOOTER).add(table.html())


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
        "run": list(commands(table.label)),
    }


def _values(values: Entries) -> list[dict[str, Any]]:
    return [
        {**entry._asdict(), "value": value.value, "low": value.low, "high": value.high}
        for entry, value in values.items()
    ]
