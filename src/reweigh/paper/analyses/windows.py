"""Where an edit would have changed the model's mind: one-step winners, and the window before a mention.

The *window* of a mention is the four steps before its onset, cut at the answer's start; it is switched if the edit
changes the candidate-local argmax at any of them, however often. Selectivity is the switch rate before hallucinated
mentions minus that before grounded ones, in points. Only what an edit does to the recorded step counts: no text is
generated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import Array, ratio

WINDOW = 4
Floats = NDArray[np.float64]
HALLUCINATED, GROUNDED = "hallucinated", "grounded"


def winner(ids: NDArray[Any], logits: NDArray[Any]) -> int:
    """The token of highest logit; the lower id of equals."""
    return int(np.min(ids[logits == logits.max()]))


def switches(ids: NDArray[Any], logits: NDArray[Any], edit: Floats) -> bool:
    """Whether ``logits - edit`` has another winner among the candidates than ``logits``."""
    raw = np.asarray(logits, dtype=np.float64)
    return winner(ids, raw) != winner(ids, raw - edit)


def lowest(ids: NDArray[Any], evidence: NDArray[Any]) -> int:
    """Where the candidate of lowest evidence stands; the lower id of equals."""
    return int(np.lexsort((ids, evidence))[0])


def raw_edit(ids: NDArray[Any], evidence: NDArray[Any], beta: float) -> Floats:
    """The raw score-to-edit control: the candidate of lowest evidence loses beta, all others nothing."""
    edit = np.zeros(len(ids))
    edit[lowest(ids, evidence)] = beta
    return edit


def first_switch(
    switched: Sequence[bool] | NDArray[np.bool_], onset: int, *, width: int = WINDOW
) -> int | None:
    """The first switched step of the window before ``onset``; ``None`` if the window is not switched."""
    for step in range(max(0, onset - width), onset):
        if switched[step]:
            return step
    return None


def count_windows(kinds: Sequence[str], switched: Mapping[str, Sequence[bool]]) -> dict[str, float]:
    """Counts of one image: mentions of each kind, and how many of each the arms switch."""
    counts = {kind: float(sum(one == kind for one in kinds)) for kind in (HALLUCINATED, GROUNDED)}
    for arm, flags in switched.items():
        for kind in (HALLUCINATED, GROUNDED):
            pairs = zip(kinds, flags, strict=True)
            counts[f"{arm}/{kind}"] = float(sum(flag and one == kind for one, flag in pairs))
    return counts


def selectivity(counts: Mapping[str, Array], arm: str) -> Array:
    """Switch rate before hallucinated mentions minus that before grounded ones, in points."""
    before, after = (ratio(counts[f"{arm}/{kind}"], counts[kind]) for kind in (HALLUCINATED, GROUNDED))
    return np.asarray(before - after)
