"""Controls for a choice by a verifier: signals that ask nobody, and answers corrected for the errors that the checks show.

Tried beside it and not built in. A signal tells whether the questions are worth asking; a correction, whether the checks
could mend what they see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from reweigh.benchmarks.bootstrap import Array
from reweigh.experiments.tune.labelfree.arrays import Arrays, Flags, quality_of, quality_of_sums
from reweigh.experiments.tune.labelfree.worse import (
    Spoil,
    affirms_typical,
    flips,
    itself,
    leans_to_yes,
    mixed,
    shares_the_base,
)

Rated = Mapping[str, Array] | Array
"""The four figures of every point, by which the rule chooses; or one number for each, the highest being chosen, (P,)."""

Rate = Callable[[Arrays, Array, Array], Rated]
"""From the search, how often each image was drawn, (I,), and three uniform draws for each question, (3, K)."""


@dataclass(frozen=True)
class Control:
    """Another way to choose: what it is called and how it rates the points."""

    name: str
    rate: Rate


def largest_beta(search: Arrays, times: Array, chance: Array) -> Rated:
    """Rate points by beta alone: what a signal is worth that only grows with it."""
    return np.array([beta for _, beta in search.keys])


def fewest_mentions(search: Arrays, times: Array, chance: Array) -> Rated:
    """Rate points by how little they mention."""
    return -(search.by_image(search.said) @ times)


def consensus(share: float) -> Rate:
    """Take for present what at least this share of the points, the base among them, mentions."""

    def rate(search: Arrays, times: Array, chance: Array) -> Rated:
        agreed = np.asarray((search.said > 0).mean(axis=0) >= share)
        return quality_of(search.counted(agreed), times)

    return rate


def corrected(answers: Spoil) -> Rate:
    """Correct the counts of a verifier's answers as Rogan and Gladen correct a prevalence."""
    return lambda search, times, chance: rogan_gladen(search, answers(search, chance), times)


def rogan_gladen(search: Arrays, affirmed: Flags, times: Array) -> dict[str, Array]:
    """The four figures with n objects, y of them affirmed, counted as (y - f n) / (1 - m - f) present ones.

    f is the share of known absents that is affirmed; m, the share of present objects that is denied, is half of what
    is denied of objects that every point names. CHAIR_S, which counts whole descriptions, stays as it is answered.
    """
    counts, trust = search.counted(affirmed), search.trust(affirmed, times)
    if trust.h is None or trust.f is None or (told := 1 - (1 - trust.h) / 2 - trust.f) <= 0:
        return quality_of(counts, times)
    sums, f = {name: one @ times for name, one in counts.items()}, trust.f

    def present(yes: Array, asked: Array) -> Array:
        return np.clip((yes - f * asked) / told, 0, asked)

    mentions = sums["mentions"]
    there = present(mentions - sums["hallucinated_mentions"], mentions)
    named = present(sums["recovered"], search.by_image(search.said > 0) @ times)
    reference = present(sums["reference"], search.by_image(search.pooled) @ times)
    return quality_of_sums(
        sums
        | {
            "hallucinated_mentions": mentions - there,
            "recovered": np.minimum(named, reference),
            "reference": reference,
        }
    )


CONTROLS = (
    Control("no questions: the largest beta", largest_beta),
    Control("no questions: fewest mentions", fewest_mentions),
    *(Control(f"no questions: {p}% of the points agree", consensus(p / 100)) for p in (50, 75, 100)),
    Control("corrected: the verifier itself", corrected(itself)),
    Control("corrected: answers at random wrong, 40%", corrected(flips(0.4))),
    *(
        Control(f"corrected: affirms typical absents, {p}%", corrected(affirms_typical(p / 100)))
        for p in (70, 90)
    ),
    Control("corrected: leans to yes, logits +8", corrected(leans_to_yes(8))),
    Control("corrected: believes the base's inventions, 70%", corrected(shares_the_base(0.7))),
    Control("corrected: mixed", corrected(mixed)),
)
"""What a choice by a verifier is held against besides labels."""
