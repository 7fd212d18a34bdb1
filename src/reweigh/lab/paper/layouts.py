"""The paper's tables in their own shape: its rows and columns, what was measured beside what is published.

``published.json`` says how a table is laid out, by the keys of the frame that is made here: ``model``, ``row``, ``metric``
and ``source`` (published or measured), and ``layer`` and ``beta`` for the grid.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal

from reweigh.lab.arms.ablate.arms import WORDS
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Key, Row
from reweigh.lab.paper.measured import Measured
from reweigh.lab.paper.protocol import protocol
from reweigh.lab.paper.published import Published
from reweigh.lab.paper.study import Entries, Entry
from reweigh.lab.views.layout import Layout, tabulate
from reweigh.lab.views.table import Cell, Column, Table

PAPER, HERE = "published", "measured"
POINT = re.compile(r"layer (\S+), beta (\S+)")
DIGITS = 2
"""Decimals of figures of which nothing is published."""


def tables_of(table: Published, measured: Sequence[Measured]) -> list[Table]:
    """Return a table of the paper with every measured number: one table, or one for each panel."""
    if table.label in TEXTS:
        return [TEXTS[table.label]()]
    shape = table.layout
    frame = frame_of(table, measured)
    if not frame.rows:
        return []
    rows, columns = list(shape.get("rows", ["model", "row"])), shape.get("columns", ["metric"])
    if "model" in rows:
        rows.append("source")
    layout = Layout(
        title=table.title,
        rows=rows,
        columns=columns,
        figure="metric",
        heads={name: _head(table, name) for name in table.metrics},
        ranked="row" if shape.get("ranked") else None,
        names={
            "model": "Model",
            "row": shape.get("row", "Method"),
            "source": "",
            "beta": "beta",
            "metric": "Metric",
        },
        titles={"layer": {layer: f"layer {layer}" for layer in _values(frame, "layer")}},
        orders={
            "model": list(dict.fromkeys(one for name in table.values for one in (name, f"{name}, {HERE}"))),
            "row": table.rows,
            "source": (PAPER, HERE),
            **{key: sorted(_values(frame, key), key=_number) for key in ("layer", "beta")},
        },
        kept=[rows[0 if rows[0] != "model" else 1]],
    )
    panels = [frame.pick(metric=some) for some in shape.get("panels", [table.metrics])]
    if "layer" in columns:  # layers of different models have nothing in common
        panels = [panel.pick(model=model) for panel in panels for model in panel.distinct("model")]
    return [tabulate(panel, layout) for panel in panels if panel.rows]


def checkpoints() -> Table:
    """Return the paper's models, where transformers finds them, and the published points."""
    heads = [Column(name) for name in ("Model", "Checkpoint", "Language backbone", "For transformers")]
    heads += [Column("Layer", digits=0), Column("beta")]
    rows: list[list[Cell]] = []
    for name, one in protocol().models.items():
        hub = one.hub or one.note or ""
        rows.append([name, one.checkpoint, one.backbone, hub, one.layer, one.beta])
    return Table(heads, rows)


def definitions() -> Table:
    """Return what each arm of the ablation changes."""
    arms = protocol()["ablation"]["arms"]
    rows = [[arms[name], words] for name, words in WORDS.items() if name in arms]
    return Table([Column("Arm"), Column("Changes")], rows)


TEXTS: dict[str, Callable[[], Table]] = {
    "tab:model-checkpoints": checkpoints,
    "tab:ablation-definitions": definitions,
}
"""Tables that measure nothing, filled from the settings."""


def frame_of(table: Published, measured: Sequence[Measured]) -> Frame:
    """Return every number of a table, published and measured, under the paper's names."""
    columns = table.layout.get("columns", ())
    rows: list[Row] = []

    def add(model: str, source: str, values: Entries) -> None:
        name = f"{model}, {HERE}" if source == HERE and "model" in columns else model
        for entry, value in values.items():
            for keys in _keys(table, values, entry):
                rows.append(Row({"model": name, "source": source, **keys, "metric": entry.metric}, value))

    for model, values in table.values.items():
        add(model, PAPER, values)
    for one in measured:
        add(one.name, HERE, one.values)
    return Frame(rows)


def _keys(table: Published, values: Entries, entry: Entry) -> Iterator[dict[str, Key]]:
    """Yield the keys of a row; the base of the grid is beta 0 of every layer."""
    if "layer" not in table.layout.get("columns", ()):
        yield {"row": entry.row}
    elif point := POINT.fullmatch(entry.row):
        yield {"layer": point[1], "beta": point[2]}
    else:
        layers = dict.fromkeys(found[1] for one in values if (found := POINT.fullmatch(one.row)))
        yield from (
            {"layer": layer, "beta": "0"}
            for layer in layers
            if Entry(f"layer {layer}, beta 0", entry.metric) not in values
        )


def _values(frame: Frame, key: str) -> list[Key]:
    return frame.distinct(key) if key in frame.keys else []


def _number(text: Key) -> float:
    return float(str(text))


def _head(table: Published, metric: Key) -> Column:
    """Return how the numbers of a metric are written: with as many decimals as the paper has."""
    name, shape = str(metric), table.layout
    group = next((title for title, some in shape.get("groups", {}).items() if name in some), "")
    published = (
        values[entry] for values in table.values.values() for entry in values if entry.metric == name
    )
    return Column(
        name.removeprefix(f"{group} "),
        table.metrics.get(name),
        shape.get("digits") or _decimals(published),
        unit=shape.get("unit", {}).get(name, ""),
        group=group,
    )


def _decimals(values: Iterable[Estimate]) -> int:
    known = [part for value in values for part in value.parts if part is not None]
    exponents = (Decimal(str(part)).normalize().as_tuple().exponent for part in known)
    return max(0, *(-one for one in exponents if isinstance(one, int))) if known else DIGITS
