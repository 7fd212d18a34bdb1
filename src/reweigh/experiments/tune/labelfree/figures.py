"""CHAIR's counts with a verifier in place of annotations, and the objects that tell whether it can be believed.

For image i and point p, C[p, i, x] counts the mentions of object x; the pool U_i holds every object that any point
mentions; A[i, x] is 1 where the verifier affirms x. A denied mention stands for a hallucinated one. Pure: knows no
model and no file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.benchmarks.base import Item, Record
from reweigh.benchmarks.chair.metrics import count_caption

NEIGHBOURS = 8
ABSENT = 4

Mentions = Sequence[Counter[str]]
"""How often each image's description mentions each object."""

Affirmed = Sequence[Mapping[str, bool]]
"""For each image, whether the verifier affirms each object it was asked about."""


def pools(points: Mapping[Any, Mentions]) -> list[set[str]]:
    """U_i: the objects that any point mentions."""
    counts = list(points.values())
    return [set().union(*(one[image] for one in counts)) for image in range(len(counts[0]))]


def pseudo_items(
    records: Sequence[Record], mentions: Mentions, pool: Sequence[set[str]], affirmed: Affirmed
) -> list[Item]:
    """One point counted as CHAIR counts, the affirmed objects of the pool standing for those that are there.

    CHAIR_I = sum C (1 - A) / sum C; recall = sum [C > 0] A / sum over U of A; F1 is their harmonic mean.
    """
    return [
        Item(
            id=record.id,
            image=record.image,
            counts=count_caption(list(counts.elements()), {name for name in objects if yes[name]}, words=0),
        )
        for record, counts, objects, yes in zip(records, mentions, pool, affirmed, strict=True)
    ]


def known_absents(pool: Sequence[set[str]]) -> list[list[str]]:
    """Up to four objects an image most likely lacks: those its most similar images mention and no point mentions here.

    Similar images share most of their pools (Jaccard); the objects most of the eight nearest name come first.
    """
    found = []
    for own, near in zip(pool, neighbours(pool), strict=True):
        counts = Counter(name for other in near for name in pool[other] - own)
        found.append(sorted(counts, key=lambda name: (-counts[name], name))[:ABSENT])
    return found


def neighbours(pool: Sequence[set[str]]) -> list[list[int]]:
    """The eight images whose pools are most like each image's own."""
    found = []
    for image, own in enumerate(pool):
        others = [other for other in range(len(pool)) if other != image]
        others.sort(key=lambda other: (-_jaccard(own, pool[other]), other))
        found.append(others[:NEIGHBOURS])
    return found


def _jaccard(first: set[str], second: set[str]) -> float:
    both = len(first | second)
    return len(first & second) / both if both else 0.0
