"""Rows that mean less than their figures say: methods that wrote the same texts, repeated themselves or fell apart.

CHAIR_I falls when what is true is said again and again; so a method that mentions far more objects than the base, leaves
many texts unfinished or writes what the model finds next to impossible is named under the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

from reweigh.experiments.compare.fluency import IMPROBABLE
from reweigh.experiments.compare.methods import Method
from reweigh.runs.task import Scored

WORDY = 1.25
"""Mentions per caption over the base's, from which on repetition is named."""

UNFINISHED = 0.10
"""Share of texts without an end, above the base's, from which on it is named."""

BROKEN = 0.25
"""Share of broken texts, above the base's, from which on it is named."""

ENDS = (".", "!", "?", '"', ")")


def degenerate(
    methods: Sequence[Method],
    scores: Mapping[str, Mapping[str, Scored]],
    broken: Mapping[str, Mapping[str, float]],
) -> list[str]:
    """A sentence for each such row and benchmark; ``broken`` are the shares of broken texts, where they are known."""
    said = []
    for name, found in scores.items():
        served = [method for method in methods if method.name in found]
        texts = {method.name: found[method.name].texts for method in served}
        base = served[0]
        for one, other in combinations(served, 2):
            if texts[one.name] == texts[other.name]:
                said.append(
                    f"{other.title} wrote exactly the texts of {one.title} on {name}: what sets the two apart changed "
                    "no word."
                )
        for method in served[1:]:
            if (more := _more_mentions(found[method.name], found[base.name])) is not None:
                said.append(
                    f"{method.title} mentions {more:.1f} times as many objects as the base on {name}: repeating what is "
                    "true lowers CHAIR_I, so read its distinct CHAIR_I."
                )
            share = unfinished(texts[method.name])
            if share - unfinished(texts[base.name]) > UNFINISHED:
                said.append(f"{method.title} leaves {share:.0%} of its texts on {name} without an end.")
            said += _falling_apart(method, base, broken.get(name, {}), name)
    return said


def _falling_apart(method: Method, base: Method, broken: Mapping[str, float], name: str) -> list[str]:
    share = broken.get(method.name, 0.0)
    if share - broken.get(base.name, 0.0) <= BROKEN:
        return []
    return [
        f"{method.title} breaks its sentences: {share:.0%} of its texts on {name} hold a word to which the model itself "
        f"gives less than 1 in {1 / IMPROBABLE:,.0f} there, and figures of objects do not see that."
    ]


def unfinished(texts: Sequence[str]) -> float:
    """Share of texts that do not end as a sentence does; one-word answers do not count."""
    long = [text.strip() for text in texts if len(text.split()) > 3]
    return sum(not text.endswith(ENDS) for text in long) / len(long) if long else 0.0


def _more_mentions(run: Scored, base: Scored) -> float | None:
    own, its = (one.summary.metrics.get("mentions") for one in (run, base))
    if own is None or its is None or own.value is None or not its.value:
        return None
    return own.value / its.value if own.value > WORDY * its.value else None
