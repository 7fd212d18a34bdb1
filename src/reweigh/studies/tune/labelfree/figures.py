"""CHAIR's figures with a verifier in place of annotations, and what tells whether the verifier can be believed.

For image i and point p, C[p, i, x] counts the mentions of object x; the pool U_i holds every object that any point
mentions; A[i, x] is 1 where the verifier affirms x. A denied mention stands for a hallucinated one. Pure: knows no
model and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reweigh.studies.tune.search import Quality

NEIGHBOURS = 8
ABSENT = 4
LEAST_DENIED = 30
LEAST_J = 0.5
MOST_F = 0.4
LEAST_D0 = 8.0

Mentions = Sequence[Counter[str]]
"""How often each image's description mentions each object."""

Affirmed = Sequence[Mapping[str, bool]]
"""For each image, whether the verifier affirms each object it was asked about."""

Key = TypeVar("Key", bound=Hashable)


def pools(points: Mapping[Any, Mentions]) -> list[set[str]]:
    """U_i: the objects that any point mentions."""
    counts = list(points.values())
    return [set().union(*(one[image] for one in counts)) for image in range(len(counts[0]))]


def pseudo_quality(mentions: Mentions, pool: Sequence[set[str]], affirmed: Affirmed) -> Quality:
    """CHAIR_S, CHAIR_I, recall and F1 of one point, denied mentions standing for hallucinated ones.

    CHAIR_I = sum C (1 - A) / sum C; recall = sum [C > 0] A / sum over U of A; F1 is their harmonic mean.
    """
    said = denied = sentences = named = there = 0
    for counts, objects, yes in zip(mentions, pool, affirmed, strict=True):
        wrong = sum(count for name, count in counts.items() if not yes[name])
        said += sum(counts.values())
        denied += wrong
        sentences += wrong > 0
        named += sum(yes[name] for name in counts)
        there += sum(yes[name] for name in objects)
    if not said or not there:
        return Quality(100 * sentences / len(mentions) if mentions else None, None, None, None)
    chair_i, recall = 100 * denied / said, 100 * named / there
    precision = 100 - chair_i
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Quality(100 * sentences / len(mentions), chair_i, recall, f1)


def known_absents(pool: Sequence[set[str]]) -> list[list[str]]:
    """Up to four objects an image most likely lacks: those its most similar images mention and no point mentions here.

    Similar images share most of their pools (Jaccard); the objects most of the eight nearest name come first.
    """
    found = []
    for image, own in enumerate(pool):
        others = [other for other in range(len(pool)) if other != image]
        others.sort(key=lambda other: (-_jaccard(own, pool[other]), other))
        counts = Counter(name for other in others[:NEIGHBOURS] for name in pool[other] - own)
        found.append(sorted(counts, key=lambda name: (-counts[name], name))[:ABSENT])
    return found


def _jaccard(first: set[str], second: set[str]) -> float:
    both = len(first | second)
    return len(first & second) / both if both else 0.0


@dataclass(frozen=True, slots=True)
class Trust:
    """What the answers say about the verifier itself.

    Attributes:
        h: Share of yes to objects that every point names.
        f: Share of yes to known absents.
        d0: The base's CHAIR_I by the verifier, in percent.
        denied: Mentions of the base that the verifier denies.
    """

    h: float | None
    f: float | None
    d0: float | None
    denied: int

    @property
    def j(self) -> float | None:
        """J = h - f: how far the verifier tells present from absent."""
        return None if self.h is None or self.f is None else self.h - self.f

    def refusal(self) -> str | None:
        """Why no point may be chosen by these answers, if so."""
        if self.j is None:
            return "no object is named by every point, or no known absent could be asked for"
        if self.j < LEAST_J:
            return f"the verifier hardly tells present from absent objects (J {self.j:.2f}, at least {LEAST_J:g})"
        if self.denied < LEAST_DENIED:
            return (
                f"it denies only {self.denied} mentions of the base (at least {LEAST_DENIED} are needed): "
                "take more pictures, or the model invents too little to choose by"
            )
        return None

    def warnings(self) -> list[str]:
        """What a reader must know before using the choice."""
        said = []
        if self.f is not None and self.f > MOST_F:
            said.append(f"the verifier affirms {self.f:.0%} of known absents: it leans to yes")
        if self.d0 is not None and self.d0 < LEAST_D0:
            said.append(
                f"the verifier denies only {self.d0:.1f}% of the base's mentions: the model invents little, "
                "or the verifier believes its inventions"
            )
        said.append(
            "a model that believes its own inventions makes the choice too timid, and no check here can see that; "
            "another model as verifier (--verifier) can"
        )
        return said


def trust(
    points: Mapping[Key, Mentions], base: Key, absents: Sequence[Sequence[str]], affirmed: Affirmed
) -> Trust:
    """h, f, d0 and the denied mentions of the base."""
    counts = list(points.values())
    common = [
        affirmed[image][name]
        for image in range(len(affirmed))
        for name in set.intersection(*(set(one[image]) for one in counts))
    ]
    asked = [affirmed[image][name] for image, names in enumerate(absents) for name in names]
    quality = pseudo_quality(points[base], pools(points), affirmed)
    denied = sum(
        count
        for mentions, yes in zip(points[base], affirmed, strict=True)
        for name, count in mentions.items()
        if not yes[name]
    )
    return Trust(_share(common), _share(asked), quality.chair_i, denied)


def _share(answers: Sequence[bool]) -> float | None:
    return sum(answers) / len(answers) if answers else None
