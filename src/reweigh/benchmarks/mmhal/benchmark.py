"""MMHal-Bench rated by a chat judge: from 0 to 6 for each answer.

Two readings of a judge's reply, both named: ``official`` looks for "rating: s" anywhere in the text, digits
being read one by one; ``strict`` (the paper's wording) requires one whole number from 0 to 6 after "rating: ". A
reply with no or several ratings scores 0 under both and is counted as unparsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from reweigh.benchmarks.base import Item, MetricInfo
from reweigh.benchmarks.bootstrap import Array, intervals, ratio, sum_counts
from reweigh.benchmarks.judge.protocol import user
from reweigh.benchmarks.judge.settings import SYSTEMONE
from reweigh.benchmarks.judged import ChatJudged, Rules
from reweigh.benchmarks.mmhal.questions import (
    HALLUCINATED_BELOW,
    TYPES,
    MMHalQuestions,
    Question,
    type_scores,
)
from reweigh.estimate import Estimate

METRICS = (
    MetricInfo("score", "higher", unit="", digits=2, headline=True),
    MetricInfo("hallucination_rate", "lower", headline=True),
    MetricInfo("unparsed", "lower", headline=True),
)
"""The metrics of all questions; each type has its own score, ``score_attribute`` and so on."""


def parse_official(reply: str) -> int | None:
    """The official program's reading: the one digit s for which "rating: s" occurs, or None.

    It looks for the characters only, so that 10 reads as 1, 4.5 as 4 and "underrating: 3" as 3.
    """
    text = reply.lower()
    found = [score for score in range(7) if f"rating: {score}" in text]
    return found[0] if len(found) == 1 else None


_RATING = re.compile(r"(\w?rating: [0-9]+(?:\.[0-9]+)?)")
_VALID = {f"rating: {score}": score for score in range(7)}


def parse_strict(reply: str) -> int | None:
    """The strict reading: all "rating: n" entries name one and the same whole number from 0 to 6."""
    found = set(_RATING.findall(reply.lower()))
    return _VALID.get(found.pop()) if len(found) == 1 else None


PARSERS: Mapping[Rules, Callable[[str], int | None]] = {"official": parse_official, "strict": parse_strict}


FIGURES = ("score", "hallucination_rate", "unparsed", *(f"score_{name}" for name in TYPES))


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Mean score, hallucination rate and unparsed share in percent, mean score of each type."""
    return {
        "score": ratio(counts["score"], counts["n"], scale=1.0),
        "hallucination_rate": ratio(counts["hallucinated"], counts["n"]),
        "unparsed": ratio(counts["unparsed"], counts["n"]),
        **type_scores(counts),
    }


class MMHal(MMHalQuestions[str], ChatJudged[Question, str]):
    """MMHal-Bench as the paper scores it, with the official figures in addition."""

    name = "mmhal"
    title = "MMHal-Bench"
    rated_as: ClassVar[Mapping[str, str]] = {SYSTEMONE: "mmhal-systemone"}
    metrics = METRICS
    figures = staticmethod(figures)

    def _make_ask(self, prompt: str) -> Callable[[Question, str, int], str]:
        judge = self._chat()
        return lambda question, answer, _run: judge.ask(user(self._filled(prompt, question, answer)))

    def _item(self, question: Question, answer: str, verdicts: Sequence[str]) -> Item:
        return rate(question, answer, verdicts[0], rules=self.rules)

    def _metrics(self, items: Sequence[Item]) -> dict[str, Estimate]:
        return intervals(items, figures, reasons=dict.fromkeys(FIGURES, "no question of this kind was rated"))

    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        unparsed = int(counts.get("official_unparsed", 0))
        return {**super()._scorer(counts), "unparsed_official": unparsed}

    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        return official_figures(items)


def rate(question: Question, answer: str, reply: str, *, rules: Rules) -> Item:
    """Turn a judge's reply into an item that carries both readings."""
    chosen, official = PARSERS[rules](reply), parse_official(reply)
    counts: dict[str, float] = {"n": 1, "unparsed": chosen is None, "official_unparsed": official is None}
    counts["score"] = chosen or 0
    counts["hallucinated"] = (chosen or 0) < HALLUCINATED_BELOW
    counts["official_score"] = official or 0
    counts["official_hallucinated"] = (official or 0) < HALLUCINATED_BELOW
    for name in TYPES:
        own = name == question.type
        counts[f"n:{name}"] = own
        counts[f"score:{name}"] = (chosen or 0) if own else 0
        counts[f"official_score:{name}"] = (official or 0) if own else 0
    return Item(
        id=question.index,
        image=question.image,
        counts={name: float(value) for name, value in counts.items()},
        details={
            **question.report_details(answer),
            "reply": reply,
            "score": chosen or 0,
            "parsed": chosen is not None,
        },
    )


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """What the official program prints for all 96: two decimals, the rate as a fraction."""
    counts = sum_counts(items)
    printed: dict[str, float | None] = {
        "average_score": float(f"{counts['official_score'] / counts['n']:.2f}"),
        "hallucination_rate": float(f"{counts['official_hallucinated'] / counts['n']:.2f}"),
    }
    for name in TYPES:
        of_type = counts[f"n:{name}"]
        printed[f"score_{name}"] = round(counts[f"official_score:{name}"] / of_type, 2) if of_type else None
    return printed
