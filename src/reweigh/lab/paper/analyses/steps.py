"""What an edit does to recorded steps: fields of edits, one-step winners, and the windows before mentions.

A *field* is what a calibrated readout would subtract from any candidates. The *window* of a mention is the four steps before
its onset, cut at the answer's start; it is switched if the edit changes the candidate-local argmax at any of them, however
often. *Selectivity* is the switch rate before hallucinated mentions minus that before grounded ones, in points. Only what
an edit does to the recorded step counts: no text is generated again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.arms.ablate.arms import Variant
from reweigh.lab.bootstrap import Array, ratio
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.method.references import strength

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

HALLUCINATED, GROUNDED = "hallucinated", "grounded"
KINDS = (HALLUCINATED, GROUNDED)
WINDOW, ONSET = "window", "onset"
WIDTH = 4
"""Steps of a window."""


@dataclass(frozen=True, eq=False)
class Field:
    """The edit field of an arm.

    Attributes:
        vector: The kept evidence that it reads.
        references: (V,) b(v), NaN where a token is not registered.
        scale: b0.
        factor: Its beta in units of the method's.
    """

    vector: str
    references: Floats
    scale: float
    factor: float = 1.0

    @classmethod
    def of(cls, arm: Variant, vocab_size: int, *, vector: str | None = None) -> Field:
        """Return the field of an arm; ``vector`` is read instead of the readout's own evidence."""
        return cls(vector or arm.table.readout, arm.table.over(vocab_size), arm.table.b0, arm.factor)

    def registered(self, ids: Ids) -> NDArray[np.bool_]:
        """Return which tokens have a reference."""
        known: NDArray[np.bool_] = ~np.isnan(self.references[ids])
        return known

    def evidence(self, image: StudyImage, ids: Ids) -> Floats:
        """Return the evidence of some tokens."""
        return image.evidence[self.vector][ids].astype(np.float64)

    def deficits(self, ids: Ids, evidence: Floats) -> Floats:
        """Return (b(v) - x) / b0 of some tokens, not clipped; NaN where a token is not registered."""
        return strength(self.references[ids], evidence, self.scale, low=None, high=None)

    def strengths(self, ids: Ids, evidence: Floats) -> Floats:
        """Return s of some tokens: the deficit clipped to [0, 1], and 0 where a token is not registered."""
        found: Floats = np.nan_to_num(strength(self.references[ids], evidence, self.scale), nan=0.0)
        return found


def winner(ids: NDArray[Any], logits: NDArray[Any]) -> int:
    """Return the token with the highest logit, the lower id of equals."""
    return int(np.min(ids[logits == logits.max()]))


def switches(ids: NDArray[Any], logits: NDArray[Any], edit: Floats) -> bool:
    """Return whether ``logits - edit`` has another winner among the candidates than ``logits``."""
    raw = np.asarray(logits, dtype=np.float64)
    return winner(ids, raw) != winner(ids, raw - edit)


def first_switch(switched: Sequence[bool], onset: int) -> int | None:
    """Return the first switched step of the window before ``onset``; None if the window is not switched."""
    return next((step for step in range(max(0, onset - WIDTH), onset) if switched[step]), None)


class Count(NamedTuple):
    """A count of mentions of one kind: those that an arm switches, or all of them (``MENTIONS``)."""

    arm: tuple[str, ...]
    kind: str


MENTIONS: tuple[str, ...] = ()


def count_mentions(
    kinds: Sequence[str], flags: Mapping[tuple[str, ...], Sequence[bool]]
) -> dict[Count, float]:
    """Count the mentions of each kind in one image, and how many of each an arm flags."""
    counts = {Count(MENTIONS, kind): float(sum(one == kind for one in kinds)) for kind in KINDS}
    for arm, flagged in flags.items():
        for kind in KINDS:
            pairs = zip(kinds, flagged, strict=True)
            counts[Count(arm, kind)] = float(sum(flag and one == kind for one, flag in pairs))
    return counts


def count_switches(
    image: StudyImage,
    switched: Mapping[tuple[str, ...], Sequence[bool]],
    more: Mapping[tuple[str, ...], Sequence[bool]] | None = None,
) -> dict[Count, float]:
    """Count the windows and onsets of one image that each arm switches.

    Args:
        image: The image.
        switched: For each arm, whether it switches each step.
        more: Further flags of the mentions.
    """
    onsets = [mention.onset for mention in image.mentions]
    flags = dict(more or {})
    for arm, steps in switched.items():
        flags[(*arm, WINDOW)] = [first_switch(steps, onset) is not None for onset in onsets]
        flags[(*arm, ONSET)] = [steps[onset] for onset in onsets]
    kinds = [HALLUCINATED if mention.hallucinated else GROUNDED for mention in image.mentions]
    return count_mentions(kinds, flags)


def switch_rate(counts: Mapping[Count, Array], arm: tuple[str, ...], kind: str) -> Array:
    """Return the share of the mentions of a kind that an arm switches, in percent."""
    return ratio(counts[Count(arm, kind)], counts[Count(MENTIONS, kind)])


def selectivity(counts: Mapping[Count, Array], arm: tuple[str, ...]) -> Array:
    """Return the switch rate before hallucinated mentions minus that before grounded ones, in points."""
    return np.asarray(switch_rate(counts, arm, HALLUCINATED) - switch_rate(counts, arm, GROUNDED))
