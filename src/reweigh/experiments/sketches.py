"""What sketches change: references, the registered set and, end to end, CHAIR, beside the table of all observations.

A few hundred images leave sketches exact. What they come to when more images fill every bin is had by dropping bits: of the
default 1,024 bins over sixteen octaves, six bits of a value's fraction are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import figures
from reweigh.benchmarks.types import Metric
from reweigh.method.references import rule_named
from reweigh.progress import bar
from reweigh.runs.model import make_ask, open_session
from reweigh.runs.task import Runs, Scored
from reweigh.tables.observations import Observations
from reweigh.tables.sketches import sketch
from reweigh.tables.table import ReferenceTable

BASE, EXACT = "base", "exact"
FIGURES = ("chair_s", "chair_i", "recall", "f1")


@dataclass(frozen=True)
class Change:
    """How a table from sketches differs from that of all observations.

    Attributes:
        table: The table; ``made_with["sketch"]`` has its own bounds.
        lost: Registered tokens of the other table that this one lacks.
        gained: Registered tokens that the other one lacks.
        mean, largest: |b(v) / exact b(v) - 1| over the tokens of both.
        scale: b0 / exact b0 - 1.
    """

    table: ReferenceTable
    lost: int
    gained: int
    mean: float
    largest: float
    scale: float

    @property
    def error_bounds(self) -> Mapping[str, Any]:
        """The bounds that the table states."""
        found: Mapping[str, Any] = self.table.made_with["sketch"]
        return found


def sketched(observations: Observations, exact: ReferenceTable, bits: int) -> Change:
    """The table of sketches that keep so many bits, beside the exact one of the same observations."""
    kept = sketch(observations.at([exact.layer])).with_bits(bits)
    found = kept.register(exact.layer, rule=rule_named(str(exact.made_with["rule"])))
    made_with = {**exact.made_with, "sketch": {"bins": kept.most, "bits": bits}}
    table = ReferenceTable.build(exact.layer, found, made_with)
    both, mine, theirs = np.intersect1d(table.tokens, exact.tokens, return_indices=True)
    apart = np.abs(table.references[mine] / exact.references[theirs] - 1)
    return Change(
        table,
        len(exact) - len(both),
        len(table) - len(both),
        float(apart.mean()) if len(both) else float("nan"),
        float(apart.max()) if len(both) else float("nan"),
        table.scale / exact.scale - 1,
    )


def answer(
    loaded: tuple[Any, Any], tables: Mapping[str, ReferenceTable], runs: Runs, out: Path, *, beta: float
) -> dict[str, Scored]:
    """Answer and score the records as the base model and with each table, into folders that resume."""
    sessions = {BASE: open_session(*loaded, BASE, {})}
    for name, table in tables.items():
        sessions[name] = open_session(*loaded, "reweigh", {"table": table, "beta": beta})
    found = {}
    done = sum(runs.done(out / name) for name in sessions)
    with bar("answering", total=len(sessions) * len(runs.task.records), done=done, unit="answer") as progress:
        for name, session in sessions.items():
            ask = make_ask(session, template=runs.template)
            runs.answer(ask, out / name, session.record(), progress=progress)
            found[name] = runs.score(out / name)
    return found


def differences(
    found: Mapping[str, Scored], first: str, names: Sequence[str]
) -> dict[str, dict[str, Metric]]:
    """Each named run minus the first, drawing the same images for both."""
    return {
        name: {
            figure: metric
            for figure, metric in paired_difference(found[first].items, found[name].items, figures).items()
            if figure in FIGURES
        }
        for name in names
    }
