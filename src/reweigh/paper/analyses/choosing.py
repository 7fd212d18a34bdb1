"""Cases chosen mechanically: every answer gets a score by a stated rule; the highest score goes first, ties by image id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reweigh.benchmarks.types import Id, Item
from reweigh.runs.diff import hallucinated


@dataclass(frozen=True)
class Choice:
    """An image and its score."""

    image: Id
    score: int


def ordered(scores: Mapping[Id, int]) -> list[Choice]:
    """Images with a positive score, the highest first, ties by image id."""
    found = [Choice(image, score) for image, score in scores.items() if score > 0]
    return sorted(found, key=lambda one: (-one.score, _key(one.image)))


def net_removal(base: Sequence[Item], arm: Sequence[Item]) -> dict[Id, int]:
    """Hallucinated occurrences of the base answer minus those of the arm's."""
    later = {item.id: hallucinated(item) for item in arm}
    return {item.id: hallucinated(item).total() - later[item.id].total() for item in base}


def repetition(item: Item) -> int:
    """How often an answer names its most frequent object."""
    named = Counter(str(mention["object"]) for mention in item.details.get("mentions", []))
    return max(named.values(), default=0)


def degenerate(base: Sequence[Item], arm: Sequence[Item]) -> dict[Id, int]:
    """Repetitions of one object in the arm's degenerate answers: those that repeat one more often than any base answer."""
    usual = max((repetition(item) for item in base), default=0)
    return {item.id: count for item in arm if (count := repetition(item)) > usual}


def new_classes(arm: Sequence[Item], *others: Sequence[Item]) -> dict[Id, int]:
    """Hallucinated objects of the arm's answer that no other answer to the same image names."""
    known: dict[Id, set[str]] = {}
    for items in others:
        for item in items:
            named = {str(mention["object"]) for mention in item.details.get("mentions", [])}
            known.setdefault(item.id, set()).update(named)
    return {item.id: len(set(hallucinated(item)) - known.get(item.id, set())) for item in arm}


def _key(image: Id) -> tuple[int, int | str]:
    """Numbers in their order, before names in theirs."""
    return (0, image) if isinstance(image, int) else (1, image)
