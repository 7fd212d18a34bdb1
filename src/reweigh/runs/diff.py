"""Compare two runs on the same records: which hallucinated mentions were removed, introduced and kept.

Removed, Introduced and Net are the paper's: occurrences of hallucinated objects that only the first run has, that
only the second has, and their difference. Figures are compared by a bootstrap that draws the same images for both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Id, Item, find_benchmark
from reweigh.benchmarks.bootstrap import Array, intervals, paired_difference
from reweigh.errors import InputError
from reweigh.estimate import Estimate
from reweigh.provenance import first_difference
from reweigh.runs.results import ScoredRun, read_scored

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
    """The comparison of two runs: second minus first for every figure, and the changes of mentions."""

    benchmark: str
    n: int
    before: Mapping[str, Estimate]
    after: Mapping[str, Estimate]
    figures: Mapping[str, Estimate]
    mentions: Mapping[str, Estimate]
    changes: Sequence[Change]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain JSON."""
        return {
            "benchmark": self.benchmark,
            "n": self.n,
            "before": {name: metric.to_json() for name, metric in self.before.items()},
            "after": {name: metric.to_json() for name, metric in self.after.items()},
            "difference": {name: metric.to_json() for name, metric in self.figures.items()},
            "mentions": {name: metric.to_json() for name, metric in self.mentions.items()},
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


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two scored runs, their difference, and titles that distinguish them."""

    first: ScoredRun
    second: ScoredRun
    difference: Difference
    titles: tuple[str, str]


def diff_runs(first: Path, second: Path, *, judge: str = "") -> RunPair:
    """Compare the scored runs of two folders; both must answer the same records of one benchmark.

    ``judge`` is the kind of judge whose scores are compared, if not the official one.
    """
    one, other = read_scored(first, judge), read_scored(second, judge)
    if one.benchmark != other.benchmark:
        raise InputError(
            f"{first} is a run of {one.benchmark} and {second} one of {other.benchmark}",
            hint="compare runs of the same benchmark",
        )
    if (found_in := first_difference(one.judging, other.judging)) is not None:
        raise InputError(
            "{} and {} were rated differently: {} is {} in one and {} in the other".format(
                first, second, found_in.key, *found_in.words
            ),
            hint="score both with the same judge",
        )
    found = compare(one.benchmark, one.items, other.items, before=one.metrics, after=other.metrics)
    titles = (one.title, other.title)
    if one.title == other.title:
        titles = (first.name or str(first), second.name or str(second))
    return RunPair(one, other, found, titles)


def compare(
    benchmark: str,
    first: Sequence[Item],
    second: Sequence[Item],
    *,
    before: Mapping[str, Estimate],
    after: Mapping[str, Estimate],
) -> Difference:
    """Compare two sets of items of one benchmark; both must answer the same records."""
    differences = paired_difference(first, second, find_benchmark(benchmark).figures)
    items = [*first, *second]
    # Judged answers have only a score and do not say what is wrong.
    named = items and all("mentions" in item.details or "correct" in item.details for item in items)
    changes = changed_mentions(first, second) if named else []
    return Difference(benchmark, len(first), before, after, differences, _totals(changes), changes)


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


@dataclass(frozen=True)
class HallucinatedObject:
    """An object, how often it is mentioned, and how often the image does not show it."""

    name: str
    hallucinated: int
    mentions: int


def hallucinated_objects(items: Sequence[Item]) -> list[HallucinatedObject]:
    """List the hallucinated objects, the most frequent first, then by name."""
    if not items or not all("mentions" in item.details for item in items):
        raise InputError("this run lists no mentioned objects", hint="use a run of world or chair")
    mentions = Counter(object_of(mention) for item in items for mention in item.details["mentions"])
    wrong = sum((hallucinated(item) for item in items), Counter[str]())
    found = [HallucinatedObject(name, count, mentions[name]) for name, count in wrong.items()]
    return sorted(found, key=lambda one: (-one.hallucinated, one.name))
