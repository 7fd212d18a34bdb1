"""The objects that a scored run makes up most often, for methods that are told which words to look after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from reweigh.benchmarks.base import Item
from reweigh.errors import InputError
from reweigh.runs.diff import hallucinated


@dataclass(frozen=True)
class MadeUp:
    """An object, how often it is mentioned, and how often it is not there then."""

    name: str
    hallucinated: int
    mentions: int


def made_up(items: Sequence[Item]) -> list[MadeUp]:
    """Every object that is hallucinated at all, the most often hallucinated first, then by name."""
    if not items or not all("mentions" in item.details for item in items):
        raise InputError("the run names no objects that are mentioned", hint="take a run of world or chair")
    said = Counter(
        str(mention.get("object", mention.get("word")))
        for item in items
        for mention in item.details["mentions"]
    )
    wrong = sum((hallucinated(item) for item in items), Counter[str]())
    found = [MadeUp(name, count, said[name]) for name, count in wrong.items()]
    return sorted(found, key=lambda one: (-one.hallucinated, one.name))
