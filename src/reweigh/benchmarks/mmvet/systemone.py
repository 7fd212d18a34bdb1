"""MM-Vet graded over closed questions: a probability for each grade 0.0, 0.1, ..., 1.0.

The state is the benchmark's own prompt with the row to complete, as for the chat judge. The figures carry a name of their
own: they are not the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reweigh.benchmarks.base import Item, MetricInfo
from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.judge.protocol import Distribution
from reweigh.benchmarks.judged import ScaleJudged
from reweigh.benchmarks.mmvet.questions import CAPABILITIES, MMVetQuestions, Question, kinds, named_kinds
from reweigh.estimate import Estimate

TENTHS = 10
GRADES = tuple(f"{level / TENTHS:.1f}" for level in range(TENTHS + 1))
METRICS = (
    MetricInfo("total", "higher", headline=True),
    MetricInfo("expected_total", "higher", headline=True),
    *(MetricInfo(name, "higher") for name in CAPABILITIES),
    MetricInfo("exactly", "higher"),
)
"""Besides these there is a metric for each exact set of capabilities, ``exactly_rec+ocr`` and so on."""


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Total by the most likely and by the expected grade, each capability and each exact combination, all in percent."""
    values = {
        "total": ratio(counts["score"], counts["n"]),
        "expected_total": ratio(counts["expected"], counts["n"]),
    }
    return values | {
        name: ratio(counts[f"score{kind}"], counts[f"n{kind}"]) for name, kind in named_kinds(counts)
    }


class MMVetSystemOne(MMVetQuestions[Distribution], ScaleJudged[Question]):
    """MM-Vet by the most likely grade, the expected one beside it."""

    name = "mmvet-systemone"
    title = "MM-Vet (systemone)"
    answers_of = "mmvet"
    metrics = METRICS
    figures = staticmethod(figures)
    instructions = "Which grade completes the last row? Give the grade alone, without an explanation."

    def _levels(self, prompt: str) -> tuple[str, ...]:
        return GRADES

    def _item(self, question: Question, answer: str, verdicts: Sequence[Distribution]) -> Item:
        return grade(question, answer, verdicts[0], self._combinations)

    def _metrics(self, items: Sequence[Item]) -> dict[str, Estimate]:
        reasons = dict.fromkeys(("total", "expected_total", *CAPABILITIES), "no such question")
        return intervals(items, figures, reasons=reasons)

    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        counted = {name: int(counts.get(f"n:{name}", 0)) for name in CAPABILITIES}
        return {**super()._scorer(counts), "capability_counts": counted}


def grade(question: Question, answer: str, verdict: Distribution, combinations: list[str]) -> Item:
    """Turn a distribution over the grades into an item."""
    score, expected = verdict.level / TENTHS, verdict.expected / TENTHS
    counts = {"n": 1.0, "score": score, "expected": expected}
    for kind, own in kinds(question, combinations):
        counts |= {f"n{kind}": float(own), f"score{kind}": score * own}
    return Item(
        id=question.id,
        image=question.image,
        counts=counts,
        details={
            **question.report_details(answer),
            "score": score,
            "expected": expected,
            "probabilities": dict(zip(GRADES, verdict.probabilities, strict=True)),
        },
    )
