"""One page for each table and figure of the paper: what was run, on what, both numbers, their difference, and the order.

A measured number never stands under a published model's name: its column is headed by the model it was measured on, and a
page whose measured model is none of the paper's says so before any number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.estimate import Estimate
from reweigh.files.artifacts import write_json, write_text
from reweigh.paper.reproduction.commands import RUN
from reweigh.paper.reproduction.order import Order, number, orders
from reweigh.paper.reproduction.published import Entry, Published, published
from reweigh.paper.reproduction.sources import Measured
from reweigh.paper.studies.report import embedded_svg
from reweigh.paper.studies.report import number as shown
from reweigh.results.html import Html, document, element
from reweigh.results.table import MISSING

INDEX, DATA = "index.html", "paper.json"
NOTHING = "It holds no numbers of its own."
SHOWN = 12
"""Disagreeing orders that a page lists."""


def write_pages(found: Mapping[str, Measured], out: Path) -> dict[str, Any]:
    """Write a page for every label, an index and the data; gives the data."""
    data = {label: build_json(table, found.get(label)) for label, table in published().items()}
    for label, table in published().items():
        write_text(out / file_name(label), build_page(table, found.get(label)))
    write_text(out / INDEX, build_index(found))
    write_json(out / DATA, data)
    return data


def file_name(label: str) -> str:
    """The page of a label."""
    return label.replace(":", "-") + ".html"


def compare(table: Published, measured: Measured | None) -> tuple[str | None, list[Order]]:
    """The paper's model a measurement is compared with, and all comparisons of order."""
    if measured is None or not measured.values:
        return None, []
    reference = table.reference(measured.model)
    return reference, [] if reference is None else orders(table, table.values[reference], measured.values)


def verdict(found: Sequence[Order]) -> str:
    """Whether the orders agree, in words."""
    if not found:
        return "nothing to compare"
    agreeing = sum(order.agrees for order in found)
    return "agrees" if agreeing == len(found) else f"{agreeing} of {len(found)} agree"


def build_page(table: Published, measured: Measured | None) -> str:
    """The page of one table or figure."""
    reference, found = compare(table, measured)
    body = [_run(table, measured)]
    if measured is not None and measured.model not in table.values and table.values:
        body.append(_warning(measured))
    if table.values:
        body.append(_numbers(table, measured, reference))
    if found:
        body.append(_orders(found, str(reference)))
    if measured is not None:
        body += [element("p", sentence) for sentence in measured.sentences]
        if measured.figure is not None:
            caption = element("figcaption", f"Measured: {measured.model}, {measured.on}.")
            body.append(element("figure", embedded_svg(measured.figure, alt=table.title), caption))
        if measured.fragment is not None:
            body.append(Html(measured.fragment.read_text(encoding="utf-8")))
    body.append(element("p", element("a", "all tables and figures", href=INDEX)))
    return document(
        f"{table.kind.capitalize()} {table.label}",
        *body,
        lead=table.title,
        footer="Written by reweigh paper.",
    )


def _run(table: Published, measured: Measured | None) -> Html:
    lines = []
    if table.values:
        models = ", ".join(table.values)
        lines.append(
            element("p", element("b", "Published: "), f"{models}{f'; {table.on}' if table.on else ''}.")
        )
    else:
        lines.append(element("p", NOTHING))
    if measured is not None:
        told = f"{measured.model}; {measured.on}; by "
        lines.append(element("p", element("b", "Measured: "), told, element("code", measured.by), "."))
    elif table.label in RUN:
        lines.append(
            element("p", element("b", "Not run. "), "To measure it: ", element("code", RUN[table.label]), ".")
        )
    return element("div", *lines, class_="card")


def _warning(measured: Measured) -> Html:
    words = (
        f"{measured.model} is none of the paper's models and was measured on other images. Compare orders and signs, not "
        "sizes: the differences below are between different models."
    )
    return element("p", element("b", words))


def _numbers(table: Published, measured: Measured | None, reference: str | None) -> Html:
    """Published values, the measured one under its own model's name, and the difference."""
    models = list(table.values)
    heads = ["metric", "row", *(f"published: {model}" for model in models)]
    own = measured.values if measured is not None else {}
    if measured is not None and own:
        heads += [f"measured: {measured.model}", *([f"difference to {reference}"] if reference else [])]
    rows = []
    for entry in entries(table, measured):
        cells = [
            element("th", entry.metric, class_="words", scope="row"),
            _words(entry.row),
            *(_cell(table.values[model].get(entry)) for model in models),
        ]
        if own:
            cells.append(_cell(own[entry]) if entry in own else element("td", "not run"))
            said = table.values[reference].get(entry) if reference else None
            if reference:
                gap = None if entry not in own or said is None else number(own[entry]) - number(said)
                cells.append(element("td", MISSING if gap is None else f"{gap:+.4g}"))
        rows.append(element("tr", *cells))
    head = element(
        "tr",
        *(
            element("th", name, class_="words" if i < 2 else None, scope="col")
            for i, name in enumerate(heads)
        ),
    )
    body = element("table", element("thead", head), element("tbody", *rows))
    label = f"Published and measured values of {table.title}"
    return element("div", body, class_="scroll", tabindex="0", role="region", aria_label=label)


def _words(text: str) -> Html:
    return element("td", text, class_="words")


def _cell(value: float | Estimate | None) -> Html:
    if isinstance(value, Estimate):
        interval = element("span", f"[{shown(value.low)}, {shown(value.high)}]", class_="range")
        return element("td", shown(value.value), interval)
    return element("td", shown(value))


def entries(table: Published, measured: Measured | None) -> list[Entry]:
    """Every entry of either side, by metric, in the paper's order; measured rows it does not have come last."""
    rows = list(dict.fromkeys([*table.rows, *(entry.row for entry in (measured.values if measured else ()))]))
    known = {*_all(table), *(measured.values if measured else ())}
    return [Entry(row, metric) for metric in table.metrics for row in rows if Entry(row, metric) in known]


def _all(table: Published) -> set[Entry]:
    return {entry for values in table.values.values() for entry in values}


def _orders(found: Sequence[Order], reference: str) -> Html:
    agreeing = sum(order.agrees for order in found)
    head = element(
        "p",
        element("b", "Order: "),
        f"{agreeing} of {len(found)} comparisons come out as for {reference}"
        + ("." if agreeing == len(found) else "; these do not:"),
    )
    wrong = [order for order in found if not order.agrees]
    items = [element("li", order_words(order)) for order in wrong[:SHOWN]]
    if len(wrong) > SHOWN:
        items.append(element("li", f"and {len(wrong) - SHOWN} more"))
    return element("div", head, *([element("ul", *items)] if items else []))


def order_words(order: Order) -> str:
    """A comparison that came out differently."""
    signs = {1: ">", 0: "=", -1: "<"}
    first, second = order.first, order.second
    if second is None:
        return f"{first.row}, {first.metric}: {signs[order.published]} 0 in the paper, {signs[order.measured]} 0 here"
    if first.row == second.row:
        one, other, where = first.metric, second.metric, first.row
    else:
        one, other, where = first.row, second.row, first.metric
    return f"{where}: {one} {signs[order.published]} {other} in the paper, {one} {signs[order.measured]} {other} here"


def build_index(found: Mapping[str, Measured]) -> str:
    """All tables and figures with what became of them."""
    rows = []
    for label, table in published().items():
        measured = found.get(label)
        _, compared = compare(table, measured)
        if measured is not None:
            state, by = f"measured on {measured.model}", verdict(compared) if measured.values else "drawn"
        elif label in RUN:
            state, by = "not run", ""
        else:
            state, by = "nothing to measure", ""
        link = element("a", label, href=file_name(label))
        cells = [element("td", part, class_="words") for part in (table.title, state, by)]
        rows.append(element("tr", element("th", link, class_="words", scope="row"), *cells))
    heads = ("label", "title", "state", "order")
    head = element("tr", *(element("th", name, class_="words", scope="col") for name in heads))
    body = element("table", element("thead", head), element("tbody", *rows))
    lead = (
        "Published values are those of the paper: 7B models and larger on photographs. Measured values stand under the name "
        "of the model they were measured on."
    )
    return document(
        "The paper, table by table",
        element(
            "div", body, class_="scroll", tabindex="0", role="region", aria_label="All tables and figures"
        ),
        lead=lead,
        footer="Written by reweigh paper.",
    )


def build_json(table: Published, measured: Measured | None) -> dict[str, Any]:
    """One table or figure for a program."""
    reference, found = compare(table, measured)
    values = [] if measured is None else [_value(entry, value) for entry, value in measured.values.items()]
    return {
        "title": table.title,
        "published": {
            model: [_value(entry, value) for entry, value in numbers.items()]
            for model, numbers in table.values.items()
        },
        "published_on": table.on,
        "measured": None
        if measured is None
        else {"model": measured.model, "on": measured.on, "by": measured.by, "values": values},
        "compared_with": reference,
        "orders": {"compared": len(found), "agree": sum(order.agrees for order in found)},
        "differ": [order_words(order) for order in found if not order.agrees],
        "run": RUN.get(table.label),
    }


def _value(entry: Entry, value: float | Estimate) -> dict[str, Any]:
    low, high = (value.low, value.high) if isinstance(value, Estimate) else (None, None)
    return {"row": entry.row, "metric": entry.metric, "value": number(value), "low": low, "high": high}
