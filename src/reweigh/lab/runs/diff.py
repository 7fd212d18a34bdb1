"""Compare two runs on the same records: which hallucinated mentions were removed, introduced and kept.

Removed, Introduced and Net are the paper's: occurrences of hallucinated objects that only the first run has, that
only the second has, and their difference. Figures are compared by a bootstrap that draws the same images for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.lab.bootstrap import Array, intervals
from reweigh.lab.enough import claims
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.results import Scored, read_scored
from reweigh.lab.tasks.base import Benchmark, Id, Item
from reweigh.provenance import first_difference

WRONG = "wrong answer"


@dataclass(frozen=True, slots=True)
class Change:
    """How the hallucinated objects of one item changed, with their numbers of occurrences."""

    id: Id
    image: Id
    removed: Mapping[str, int]
    introduced: Mapping[str, int]
    kept: Mapping[str, int]

    @property
    def net(self) -> int:
        """Removed minus introduced occurrences."""
        return sum(self.removed.values()) - sum(self.introduced.values())


@dataclass(frozen=True, slots=True)
class Difference:
    """Two scored runs: second minus first for every figure, the changes of mentions, and titles that tell them apart."""

    first: Scored
    second: Scored
    figures: Mapping[str, Estimate]
    mentions: Mapping[str, Estimate]
    changes: Sequence[Change]
    titles: tuple[str, str] = ("first", "second")

    @property
    def benchmark(self) -> type[Benchmark]:
        """The class of their benchmark."""
        return self.first.benchmark

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON."""
        parts = {
            "before": self.first.summary.metrics,
            "after": self.second.summary.metrics,
            "difference": self.figures,
            "mentions": self.mentions,
        }
        return {
            "benchmark": self.benchmark.name,
            "n": len(self.first.items),
            **{part: {name: one.to_json() for name, one in found.items()} for part, found in parts.items()},
            "items": [
                {
                    "id": change.id,
                    "removed": dict(change.removed),
                    "introduced": dict(change.introduced),
                    "kept": dict(change.kept),
                }
                for change in self.changes
            ],
        }


def diff_runs(first: Path, second: Path) -> Difference:
    """Compare the scored runs of two folders; both must answer the same records of one benchmark."""
    one, other = read_scored(first), read_scored(second)
    names = one.summary.benchmark, other.summary.benchmark
    if names[0] != names[1]:
        raise InputError(
            f"{first} is a run of {names[0]} and {second} one of {names[1]}",
            hint="compare runs of the same benchmark",
        )
    if (found_in := first_difference(one.judging, other.judging)) is not None:
        raise InputError(
            "{} and {} were rated differently: {} is {} in one and {} in the other".format(
                first, second, found_in.key, *found_in.words
            ),
            hint="score both with the same judge",
        )
    titles = (one.title, other.title)
    if one.title == other.title:
        titles = (first.name or str(first), second.name or str(second))
    return replace(compare(one, other), titles=titles)


def compare(first: Scored, second: Scored) -> Difference:
    """Compare two scored runs of one benchmark; both must answer the same records."""
    figures = claims(first.items, second.items, first.benchmark.figures)
    items = [*first.items, *second.items]
    # Judged answers have only a score and do not say what is wrong.
    named = items and all("mentions" in item.details or "correct" in item.details for item in items)
    changes = changed_mentions(first.items, second.items) if named else []
    return Difference(first, second, figures, _totals(changes), changes)


def changed_mentions(first: Sequence[Item], second: Sequence[Item]) -> list[Change]:
    """Pair items by id and compare their hallucinated mentions as multisets of objects."""
    later = {item.id: item for item in second}
    changes = []
    for item in first:
        if item.id not in later:
            raise InputError(
                f"item {item.id!r} is in the first run only", hint="compare runs of the same manifest"
            )
        before, after = hallucinated(item), hallucinated(later[item.id])
        changes.append(Change(item.id, item.image, before - after, after - before, before & after))
    return changes


def hallucinated(item: Item) -> Counter[str]:
    """Count the hallucinated objects of an item; a wrong yes or no counts as one."""
    if "correct" in item.details:
        return Counter() if item.details["correct"] else Counter([WRONG])
    mentions = item.details.get("mentions", [])
    return Counter(object_of(mention) for mention in mentions if mention["hallucinated"])


def object_of(mention: Mapping[str, Any]) -> str:
    """Return the object that a mention names, or its word if the benchmark keeps no objects."""
    return str(mention.get("object", mention.get("word")))


def repetition(item: Item) -> int:
    """Return how often an answer names its most frequent object."""
    named = Counter(str(mention["object"]) for mention in item.details.get("mentions", []))
    return max(named.values(), default=0)


def _totals(changes: Sequence[Change]) -> dict[str, Estimate]:
    items = [
        Item(
            id=change.id,
            image=change.image,
            counts={
                "removed": sum(change.removed.values()),
                "introduced": sum(change.introduced.values()),
                "kept": sum(change.kept.values()),
            },
        )
        for change in changes
    ]

    def sums(counts: Mapping[str, Array]) -> dict[str, Array]:
        return {**counts, "net": counts["removed"] - counts["introduced"]}

    return intervals(items, sums) if items else {}


def hallucinated_objects(items: Sequence[Item]) -> list[tuple[str, int]]:
    """List the hallucinated objects with their numbers of mentions, the most frequent first, then by name."""
    if not items or not all("mentions" in item.details for item in items):
        raise InputError("this run lists no mentioned objects", hint="use a run of world or chair")
    wrong = sum((hallucinated(item) for item in items), Counter[str]())
    return sorted(wrong.items(), key=lambda one: (-one[1], one[0]))
