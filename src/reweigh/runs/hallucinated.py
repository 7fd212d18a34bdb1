"""The objects that a scored run hallucinates most often, for decoders that take a list of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reweigh.benchmarks.base import Item
from reweigh.errors import InputError
from reweigh.runs.diff import hallucinated, object_of


@dataclass(frozen=True)
class HallucinatedObject:
    """An object, how often it is mentioned, and how often the image does not show it."""

    name: str
    hallucinated: int
    mentions: int


def hallucinated_objects(items: Sequence[Item]) -> list[HallucinatedObject]:
    """Every object that is hallucinated at all, the most often hallucinated first, then by name."""
    if not items or not all("mentions" in item.details for item in items):
        raise InputError("the run names no objects that are mentioned", hint="take a run of world or chair")
    mentions = Counter(object_of(mention) for item in items for mention in item.details["mentions"])
    wrong = sum((hallucinated(item) for item in items), Counter[str]())
    found = [HallucinatedObject(name, count, mentions[name]) for name, count in wrong.items()]
    return sorted(found, key=lambda one: (-one.hallucinated, one.name))
