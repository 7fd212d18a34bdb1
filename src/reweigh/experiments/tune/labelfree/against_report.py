"""Choices without labels against choices with them, for people and programs: a table, sentences, a page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import find_metric
from reweigh.benchmarks.chair.metrics import METRICS
from reweigh.experiments.tune.labelfree.against import Against, Held
from reweigh.experiments.tune.search import BASE, Key
from reweigh.files.artifacts import write_json, write_text
from reweigh.results.html import at_every_width, element, figure, page, section
from reweigh.results.plots import interval_plot
from reweigh.results.tables import Cell, Column, Estimate, Table

FILES = ("against-labels.md", "against-labels.html", "against-labels.json")
COLUMNS = (
    Column("verifier"),
    Column("right %"),
    Column("rho", digits=2),
    Column("gain %"),
    Column("regret"),
    Column("f", digits=2),
    Column("J", digits=2),
    Column("d0 %"),
    Column("refuses %", digits=0),
    Column("warns %", digits=0),
    Column(""),
)
TRIED = (Column("control"), Column("rho", digits=2), Column("gain %"), Column("regret"))
CHECKS = 5
"""Place of the first column about the checks."""

ROOMY = 140
"""Characters of a line that hold all columns."""

EXPLAINED = (
    "right: right answers; rho: rank correlation over the points of the gain by the answers with the true gain; gain: true "
    "gain of the choice on pictures it was not made on, mean and 95% of draws, a refused choice counted as if it were "
    "used; regret: what the labels' choice gains more; "
    "f: known absents affirmed; J: present objects affirmed, minus f; d0: the base's mentions denied; refuses, warns: "
    "share of draws; blind: a fifth of the gain is lost and most draws neither refuse nor warn."
)


CONTROLS = (
    "Tried beside it, not built in. no questions: the point is chosen by what the descriptions hold alone (where some share "
    "of the points agrees, that is taken for what is there); corrected: answers as above, counts corrected by f and h as "
    "Rogan and Gladen correct a prevalence."
)


def build_table(held: Against) -> Table:
    """The labels' choice, the verifier's, and worse ones'."""
    labels: list[Cell] = ["labels", 100.0, 1.0, held.labels, *[None] * 6, ""]
    return Table(COLUMNS, [labels, *map(_cells, held.rows)], EXPLAINED)


def control_table(held: Against) -> Table:
    """Choices that ask nobody, and corrected answers."""
    return Table(TRIED, [[one.name, one.rho, one.gain, one.regret] for one in held.controls], CONTROLS)


def terminal(held: Against, width: int) -> list[Table]:
    """The table for a terminal of that width; where it does not fit, what a choice is worth comes before the checks."""
    whole = build_table(held)
    if width >= ROOMY:
        return [whole, control_table(held)]
    parts = [range(CHECKS), (0, *range(CHECKS, len(COLUMNS)))]
    captions = ("", EXPLAINED)
    split = [
        Table([COLUMNS[j] for j in part], [[row[j] for j in part] for row in whole.rows], caption)
        for part, caption in zip(parts, captions, strict=True)
    ]
    return [*split, control_table(held)]


def _cells(row: Held) -> list[Cell]:
    shares = (100 * row.refused, 100 * row.warned)
    said = "blind" if row.blind else ""
    return [row.name, row.accuracy, row.rho, row.gain, row.regret, row.f, row.j, row.d0, *shares, said]


def sentences(held: Against) -> list[str]:
    """The reading, made from the numbers."""
    own = held.rows[0]
    labels, verifier = (_named(key) for key in held.chosen)
    rho = ", ".join(
        f"{find_metric(METRICS, name).title} {'–' if math.isnan(value) else f'{value:.3f}'}"
        for name, value in held.correlation.items()
    )
    said = [
        f"Chosen on all {held.images} pictures: {labels} by labels, "
        f"{'the same' if labels == verifier else verifier} by the verifier ({held.questions:,} questions).",
        f"Rank correlation of its figures with the true ones over the points: {rho}.",
        f"Its choice against the labels' on other pictures ({held.draws} draws): CHAIR_I {_change(own.chair_i)}, "
        f"F1 {_change(own.f1)}, gain {_change(_less(own.regret))} points.",
        f"Known absents: it affirms {own.f:.0%} (J {own.j:.2f}). Some description mentions {held.pooled:.0f}% of "
        "what is there.",
    ]
    if refused := [row.name for row in held.rows if row.refused >= 0.5]:
        said.append(f"Refused in most draws: {'; '.join(refused)}.")
    if blind := [f"{row.name} (gain {row.gain.value:.1f}%)" for row in held.rows if row.blind]:
        said.append(f"Blind: {'; '.join(blind)}. No check sees these; another model as verifier can.")
    return said


def _named(key: Key) -> str:
    return "the base" if key == BASE else f"layer {key[0]}, beta {key[1]:g}"


def _less(estimate: Estimate) -> Estimate:
    return Estimate(0.0 - estimate.value, 0.0 - estimate.high, 0.0 - estimate.low)  # no -0.0


def _change(estimate: Estimate) -> str:
    return f"{estimate.value:+.2f} [{estimate.low:+.2f}, {estimate.high:+.2f}]"


def to_json(held: Against, about: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a program; numbers that are not defined are ``None``."""
    found = asdict(held)
    chosen = [{"layer": layer, "beta": beta} if layer is not None else None for layer, beta in held.chosen]
    found["chosen"] = dict(zip(("labels", "verifier"), chosen, strict=True))
    found["rows"] = [{**asdict(row), "blind": row.blind} for row in held.rows]
    return {**about, **_plain(found)}


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and value != value else value


def build_page(held: Against, lead: str) -> str:
    """A page that needs no other file."""
    drawn = [("labels", held.labels), *((row.name, row.gain) for row in held.rows)]
    words = "True gain of the choice in percent, on pictures it was not made on, mean and 95% of draws; higher is better."
    return page(
        "Choosing without labels, held against labels",
        *(element("p", line) for line in sentences(held)),
        section("Verifiers", build_table(held).html()),
        section("Without questions, and with corrected answers", control_table(held).html()),
        section(
            "What the choice gains",
            figure(at_every_width(lambda width: interval_plot(drawn, width=width)), words),
        ),
        lead=lead,
        footer="Written by reweigh tune --against-labels.",
    )


def write(held: Against, out: Path, lead: str, about: Mapping[str, Any]) -> list[Path]:
    """Write the table, the page and the numbers."""
    said = "\n".join(f"- {line}" for line in sentences(held))
    write_text(
        out / FILES[0],
        f"{lead}\n\n{said}\n\n{build_table(held).markdown()}\n{control_table(held).markdown()}",
    )
    write_text(out / FILES[1], build_page(held, lead))
    write_json(out / FILES[2], to_json(held, about))
    return [out / name for name in FILES]
