"""MMHal-Bench rated over closed questions: a probability for each rating from 0 to 6.

The state is the benchmark's own prompt, filled in as for the chat judge; the levels are the ratings as that prompt
describes them. The figures have their own name: they are not the paper's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reweigh.benchmarks.base import Item, MetricInfo
from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.judge.protocol import Distribution
from reweigh.benchmarks.judged import ScaleJudged
from reweigh.benchmarks.mmhal.questions import (
    HALLUCINATED_BELOW,
    TYPES,
    MMHalQuestions,
    Question,
    type_scores,
)
from reweigh.estimate import Estimate

RATINGS = range(7)
METRICS = (
    MetricInfo("score", "higher", unit="", digits=2, headline=True),
    MetricInfo("expected_score", "higher", unit="", digits=2, headline=True),
    MetricInfo("hallucination_rate", "lower", headline=True),
    MetricInfo("expected_hallucination_rate", "lower", headline=True),
)
"""The metrics of all questions; each type has its own score, ``score_attribute`` and so on."""

FIGURES = (*(info.name for info in METRICS), *(f"score_{name}" for name in TYPES))


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Mean of the most likely and of the expected rating, both for the share below 3, mean rating of each type."""
    return {
        "score": ratio(counts["score"], counts["n"], scale=1.0),
        "expected_score": ratio(counts["expected"], counts["n"], scale=1.0),
        "hallucination_rate": ratio(counts["hallucinated"], counts["n"]),
        "expected_hallucination_rate": ratio(counts["expected_hallucinated"], counts["n"]),
        **type_scores(counts),
    }


class MMHalSystemOne(MMHalQuestions[Distribution], ScaleJudged[Question]):
    """MMHal-Bench by the most likely rating, the expected one beside it."""

    name = "mmhal-systemone"
    title = "MMHal-Bench (systemone)"
    answers_of = "mmhal"
    metrics = METRICS
    figures = staticmethod(figures)
    instructions = "Which rating does the response get? Give the rating alone, without an explanation."

    def _levels(self, prompt: str) -> tuple[str, ...]:
        return levels(prompt)

    def _item(self, question: Question, answer: str, verdicts: Sequence[Distribution]) -> Item:
        return rate(question, answer, verdicts[0])

    def _metrics(self, items: Sequence[Item]) -> dict[str, Estimate]:
        return intervals(items, figures, reasons=dict.fromkeys(FIGURES, "no question of this kind was rated"))


def levels(prompt: str) -> tuple[str, ...]:
    """The ratings as the prompt describes them, ``Rating: 3, ...``; by number alone where it does not describe all.

    Example:
        >>> levels("no such list")[3]
        'Rating: 3'
    """
    found: dict[int, set[str]] = {}
    for rating, words in re.findall(r"rating: ([0-6]), *(.+)", prompt, flags=re.IGNORECASE):
        found.setdefault(int(rating), set()).add(words.strip())
    if all(len(found.get(rating, ())) == 1 for rating in RATINGS):
        return tuple(f"Rating: {rating}, {found[rating].pop()}" for rating in RATINGS)
    return tuple(f"Rating: {rating}" for rating in RATINGS)


def rate(question: Question, answer: str, verdict: Distribution) -> Item:
    """Turn a distribution over the ratings into an item."""
    rating = verdict.level
    counts: dict[str, float] = {
        "n": 1,
        "score": rating,
        "expected": verdict.expected,
        "hallucinated": rating < HALLUCINATED_BELOW,
        "expected_hallucinated": verdict.below(HALLUCINATED_BELOW),
    }
    for name in TYPES:
        own = name == question.type
        counts |= {f"n:{name}": own, f"score:{name}": rating if own else 0}
    return Item(
        id=question.index,
        image=question.image,
        counts={name: float(value) for name, value in counts.items()},
        details={
            **question.report_details(answer),
            "score": rating,
            "expected": verdict.expected,
            "probabilities": {str(level): p for level, p in enumerate(verdict.probabilities)},
        },
    )
