"""Verifiers worse than the one that was asked, made from its answers and the labels.

Each is a rule that spoils some answers at random. They tell how much a choice without labels bears, and what its checks
notice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from reweigh.benchmarks.bootstrap import Array
from reweigh.experiments.tune.labelfree.arrays import Arrays, Flags

Spoil = Callable[[Arrays, Array], Flags]
"""From the search and three uniform draws for each question, (3, K), to yes or no for each question."""


@dataclass(frozen=True)
class Worse:
    """A worse verifier: what it is called and how it answers."""

    name: str
    answers: Spoil


def itself(search: Arrays, chance: Array) -> Flags:
    """The verifier as it is."""
    return np.asarray(search.gaps > 0)


def flips(share: float) -> Spoil:
    """Answers the opposite, whatever the question."""
    return lambda search, chance: itself(search, chance) ^ (chance[0] < share)


def affirms_typical(share: float) -> Spoil:
    """Affirms absent objects that similar pictures have."""
    return lambda search, chance: (
        itself(search, chance) | (search.typical & ~search.true & (chance[0] < share))
    )


def leans_to_yes(shift: float) -> Spoil:
    """Affirms everything by so many logits more."""
    return lambda search, chance: np.asarray(search.gaps + shift > 0)


def denies_present(share: float) -> Spoil:
    """Denies objects that are there."""
    return lambda search, chance: itself(search, chance) & ~(search.true & (chance[0] < share))


def shares_the_base(share: float) -> Spoil:
    """Affirms what the base invents."""
    return lambda search, chance: (
        itself(search, chance) | ((search.said[0] > 0) & ~search.true & (chance[0] < share))
    )


def shares_any(share: float) -> Spoil:
    """Affirms what any point invents."""
    return lambda search, chance: (
        itself(search, chance) | (search.pooled & ~search.true & (chance[0] < share))
    )


def mixed(search: Arrays, chance: Array) -> Flags:
    """Affirms 30% of typical absents and 50% of the base's inventions, denies 15% of true objects the base left out."""
    affirmed = affirms_typical(0.3)(search, chance) | shares_the_base(0.5)(search, chance[1:])
    return np.asarray(affirmed & ~(search.true & (search.said[0] == 0) & (chance[2] < 0.15)))


WORSE = (
    *(Worse(f"answers at random wrong, {p}%", flips(p / 100)) for p in (13, 20, 30, 40)),
    *(Worse(f"affirms typical absents, {p}%", affirms_typical(p / 100)) for p in (30, 50, 70, 90)),
    *(Worse(f"leans to yes, logits +{shift}", leans_to_yes(shift)) for shift in (6, 8)),
    *(Worse(f"denies present objects, {p}%", denies_present(p / 100)) for p in (20, 40)),
    *(Worse(f"believes the base's inventions, {p}%", shares_the_base(p / 100)) for p in (50, 70, 90)),
    *(Worse(f"believes any point's inventions, {p}%", shares_any(p / 100)) for p in (50, 70, 90)),
    Worse("mixed: typical 30%, base's 50%, denies 15%", mixed),
)
"""What a search is tried with."""
