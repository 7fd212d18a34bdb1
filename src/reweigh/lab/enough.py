"""When there is too little behind a claim: one rule for comparisons, differences of two runs, searches and studies.

A claim needs 100 records, and 20 events on each of its sides: hallucinated and other mentions, wrong and right answers.
With fewer, an interval of resampled images is too narrow or covers nothing at all. The numbers are still shown; the
estimate carries the reason why nothing is claimed from them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reweigh.lab.bootstrap import Figures, paired_difference
from reweigh.lab.estimate import Estimate

if TYPE_CHECKING:
    from reweigh.lab.tasks.types import Item

RECORDS = 100
"""Records that a claim needs."""
EVENTS = 20
"""Events that each side of a claim needs."""


def too_few(records: int, sides: Mapping[str, int] | None = None, *, kind: str = "records") -> str | None:
    """Say why nothing can be claimed from so many records and events, or return None.

    Examples:
        >>> too_few(30)
        '30 records are too few, 100 are needed'
        >>> too_few(500, {"hallucinated mentions": 3, "other mentions": 900})
        '3 hallucinated mentions are too few, 20 are needed'
        >>> too_few(500, {"hallucinated mentions": 20, "other mentions": 900}) is None
        True
    """
    counts = [(records, kind, RECORDS), *((count, name, EVENTS) for name, count in (sides or {}).items())]
    for count, name, least in counts:
        if count < least:
            return f"{count} {name} are too few, {least} are needed"
    return None


def sides_of(*runs: Sequence[Item]) -> dict[str, int]:
    """Count the events on both sides of a claim about some runs together; none for answers that only have a score.

    Examples:
        >>> from reweigh.lab.tasks.types import Item
        >>> mentions = [{"hallucinated": True}, {"hallucinated": False}, {"hallucinated": False}]
        >>> sides_of([Item(id=1, image=1, counts={}, details={"mentions": mentions})])
        {'hallucinated mentions': 1, 'other mentions': 2}
    """
    found: Counter[str] = Counter()
    for item in (item for run in runs for item in run):
        if "correct" in item.details:
            found["wrong answers"] += not item.details["correct"]
            found["right answers"] += bool(item.details["correct"])
        elif "mentions" in item.details:
            wrong = sum(bool(mention["hallucinated"]) for mention in item.details["mentions"])
            found["hallucinated mentions"] += wrong
            found["other mentions"] += len(item.details["mentions"]) - wrong
    return dict(found)


def claims(
    first: Sequence[Item], second: Sequence[Item], figures: Figures, **draws: int
) -> dict[str, Estimate]:
    """Subtract the figures of one run from another's; each difference says if too little is behind it."""
    few = too_few(len(first), sides_of(first, second))
    found = paired_difference(first, second, figures, **draws)
    return {name: one if one.value is None else replace(one, reason=few) for name, one in found.items()}
