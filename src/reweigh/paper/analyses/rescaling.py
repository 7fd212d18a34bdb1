"""How two edit fields differ at the steps of an answer: Spearman, Jaccard, the strongest edited token, the winner.

On plain arrays: candidate ids and logits of a step, evidence and strengths before and after. A step's edited set is
{v : s(v) > 0}. Knows nothing of why the fields differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.method.strength import strength
from reweigh.paper.analyses.windows import winner
from reweigh.tables.table import ReferenceTable

SPEARMAN, JACCARD, STRONGEST, WINNER = (
    "Spearman of evidence",
    "Jaccard of edited sets",
    "strongest edited changed",
    "winner changed",
)
STEPS, EITHER, BOTH = "all steps", "either set edits", "both sets edit"
COMPARED = "steps with two registered"
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


class Field:
    """The edit field of one table: references over the vocabulary, NaN where a token is not registered."""

    def __init__(self, table: ReferenceTable, vocab_size: int, factor: float = 1.0) -> None:
        self.scale, self.factor = table.scale, factor
        self.references = table.over(vocab_size)

    def registered(self, ids: Ids) -> NDArray[np.bool_]:
        """Which tokens have a reference."""
        known: NDArray[np.bool_] = ~np.isnan(self.references[ids])
        return known

    def strengths(self, ids: Ids, evidence: NDArray[np.float32]) -> Floats:
        """s of some tokens, 0 where a token is not registered."""
        found = strength(self.references[ids], evidence[ids].astype(np.float64), self.scale)
        return np.where(np.isnan(found), 0.0, found)

    def edits(self, ids: Ids, evidence: NDArray[np.float32]) -> Floats:
        """What some tokens lose, in units of the method's beta."""
        return self.factor * self.strengths(ids, evidence)


@dataclass(frozen=True)
class StepChange:
    """What rescaling does to one step."""

    spearman: float
    either: bool
    both: bool
    jaccard: float
    strongest: bool
    winner: bool


def ranks(values: Floats) -> Floats:
    """Ranks from 1, the mean rank for equals."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's correlation; NaN for fewer than two values, or where one side is constant."""
    if len(first) < 2:
        return float("nan")
    one, other = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / norm) if norm else float("nan")


def strongest(ids: Ids, s: Floats) -> int | None:
    """The edited token of largest strength, the lower id of equals; ``None`` if nothing is edited."""
    edited = s > 0
    return int(ids[edited][np.lexsort((ids[edited], -s[edited]))[0]]) if edited.any() else None


def step_change(
    ids: Ids, logits: NDArray[Any], evidence: tuple[Floats, Floats], s: tuple[Floats, Floats], beta: float
) -> StepChange:
    """Compare one step before and after; ``evidence`` is that of the registered candidates, ``s`` of all."""
    before, after = s
    one, other = set(ids[before > 0].tolist()), set(ids[after > 0].tolist())
    raw = logits.astype(np.float64)
    return StepChange(
        spearman=spearman(*evidence),
        either=bool(one | other),
        both=bool(one and other),
        jaccard=len(one & other) / len(one | other) if one | other else float("nan"),
        strongest=strongest(ids, before) != strongest(ids, after),
        winner=winner(ids, raw - beta * before) != winner(ids, raw - beta * after),
    )


def step_counts(steps: Sequence[StepChange]) -> dict[str, float]:
    """Additive counts of some steps."""
    defined = [step.spearman for step in steps if not np.isnan(step.spearman)]
    found: dict[str, float] = {
        STEPS: len(steps),
        WINNER: sum(step.winner for step in steps),
        COMPARED: len(defined),
        SPEARMAN: sum(defined),
    }
    for name, chosen in (
        (EITHER, [step for step in steps if step.either]),
        (BOTH, [step for step in steps if step.both]),
    ):
        found[name] = len(chosen)
        found[f"{JACCARD}/{name}"] = sum(step.jaccard for step in chosen)
        found[f"{STRONGEST}/{name}"] = sum(step.strongest for step in chosen)
    return found
