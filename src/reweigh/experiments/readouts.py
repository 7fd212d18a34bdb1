"""Readouts as drop-in evidence: the table and the budget of each arm, and the tokens two arms both edit.

A readout replaces DMRR in measure; candidates, references, registration and the edit stay. ``prob`` keeps the pooled median
as its scale; the others take the positive scale at which their mean deployed edit equals DMRR's. The arm
``mean-probability-budget`` keeps the scale of ``prob`` and refits beta instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from reweigh.errors import CalibrationError, require_known
from reweigh.method.matching import mean_edit
from reweigh.method.readouts import DMRR
from reweigh.method.references import References, Rule
from reweigh.tables.observations import Observations
from reweigh.tables.table import ReferenceTable

RANK = "rank"
BUDGET = "mean-probability-budget"
ARMS = {
    "probability": "logprob",
    "mean-probability": "prob",
    BUDGET: "prob",
    "zscore": "zscore",
    "standardized-probability": "zprob",
}
"""Arm to readout."""
ALIKE = 0.03
"""Two registered sets that differ by less than this share are called nearly the same."""


@dataclass(frozen=True)
class ReadoutArm:
    """A readout ready to be deployed.

    Attributes:
        name: The arm.
        readout: Its readout.
        table: Its references and scale.
        factor: beta of the arm in units of the method's.
    """

    name: str
    readout: str
    table: ReferenceTable
    factor: float = 1.0


Observe = Callable[..., Observations]
"""Calibration observations of a readout by its name."""


def readout_arm(
    name: str, table: ReferenceTable, observe: Observe, *, rule: Rule, evidence: str | None = None
) -> ReadoutArm:
    """Register an arm from the calibration images of the table in use.

    Args:
        name: ``rank``, or one of ``ARMS``.
        table: The DMRR table in use.
        observe: Gives the observations of a readout, or of another vector in its place.
        rule: Which tokens to register.
        evidence: A kept vector that stands in for the readout's own, such as ``prob`` of equalized logits.
    """
    if name == RANK:
        return ReadoutArm(name, DMRR, table)
    require_known("readout arm", [name], ARMS)
    readout = ARMS[name]
    observations = observe(readout, evidence=evidence)
    found = observations.register(table.layer, rule=rule)
    factor = 1.0
    if name == BUDGET:
        ranked = observe(DMRR)
        target = mean_edit(ranked.token, ranked.values[0], ranked.count, references_of(table))
        own = mean_edit(observations.token, observations.values[0], observations.count, found)
        if not own > 0:
            raise CalibrationError(f"the mean edit of {name} is {own}, so no beta gives it that of DMRR")
        factor = target / own
    about = {**table.made_with, "readout": readout}
    return ReadoutArm(name, readout, ReferenceTable.build(table.layer, found, about), factor)


def references_of(table: ReferenceTable) -> References:
    """Return the references of a table."""
    return References(table.scale, table.tokens, table.references, table.counts)


def on_common_tokens(first: ReferenceTable, second: ReferenceTable) -> tuple[ReferenceTable, ReferenceTable]:
    """Restrict both tables to the tokens that are registered in both."""
    common, mine, theirs = np.intersect1d(first.tokens, second.tokens, return_indices=True)

    def kept(table: ReferenceTable, rows: np.ndarray, other: ReferenceTable) -> ReferenceTable:
        made_with = {**table.made_with, "common_with": other.fingerprint}
        columns = {"references": table.references[rows], "counts": table.counts[rows]}
        return replace(table, tokens=common, made_with=made_with, **columns)

    return kept(first, mine, second), kept(second, theirs, first)


def describe_sets(first: ReferenceTable, second: ReferenceTable, names: tuple[str, str]) -> str:
    """Say how many tokens each of two arms registers, how many both, and whether the sets are nearly the same."""
    common = len(np.intersect1d(first.tokens, second.tokens))
    apart = set_difference(first, second)
    counts = f"{names[0]} registers {len(first):,} tokens, {names[1]} {len(second):,}, both {common:,}"
    alike = ", less than 3%: native and matched are nearly the same comparison" if apart < ALIKE else ""
    return f"{counts}; the sets differ by {100 * apart:.1f}%{alike}."


def set_difference(first: ReferenceTable, second: ReferenceTable) -> float:
    """Return the share of the tokens registered in either table that the other lacks."""
    either = np.union1d(first.tokens, second.tokens)
    return 1.0 - len(np.intersect1d(first.tokens, second.tokens)) / len(either) if len(either) else 0.0
