"""MM-Vet graded by a chat judge: from 0 to 1 for each answer.

Two sets of rules, both named. ``strict`` is the paper's: one question at temperature 0, and the whole reply
must be one of 0.0, 0.1, ..., 1.0 (so 0.85 is unparsed and scores 0). ``official`` is the official program's:
the text before the first blank is parsed by Python's float and must be in [0, 1]; otherwise it asks again
with a suffix, hotter each time, and gives up after five readings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any, ClassVar

import numpy as np

from reweigh.benchmarks.base import Item, MetricInfo
from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.judge.prompts import strings_of
from reweigh.benchmarks.judge.protocol import user
from reweigh.benchmarks.judge.settings import SYSTEMONE
from reweigh.benchmarks.judged import ChatJudged
from reweigh.benchmarks.mmvet.questions import CAPABILITIES, MMVetQuestions, Question, kinds, named_kinds
from reweigh.errors import InputError
from reweigh.estimate import Estimate

JUDGE_TOKENS = 3
RETRY_TEMPERATURES = (0.0, 0.5, 1.0, 1.5)
"""Of the repeated questions; the official program fetches one more at 2.0 and does not read it."""
OWN_SUFFIX = "\nAnswer with the number alone: "

METRICS = (
    MetricInfo("total", "higher", headline=True),
    MetricInfo("unparsed", "lower", headline=True),
    *(MetricInfo(name, "higher") for name in CAPABILITIES),
    MetricInfo("exactly", "higher"),
)
"""Besides these there is a metric for each exact set of capabilities, ``exactly_rec+ocr`` and so on."""


def parse_official(reply: str) -> float | None:
    """The official reading of one reply; it accepts whatever Python's float does, NaN included."""
    try:
        value = float(reply.split(" ")[0].strip())
    except ValueError:
        return None
    return None if value > 1.0 or value < 0.0 else value


def parse_strict(reply: str) -> float | None:
    """The strict reading: the whole reply is one of the eleven grades."""
    text = reply.strip()
    if not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    try:
        tenths = Decimal(text) * 10
    except InvalidOperation:
        return None
    return int(tenths) / 10 if tenths == int(tenths) and 0 <= tenths <= 10 else None


@dataclass(frozen=True, slots=True)
class Grade:
    """What the judge's replies to one question came to."""

    score: float
    parsed: bool
    replies: tuple[str, ...]


BASIC_FIGURES = ("total", "unparsed", *CAPABILITIES)


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Total, unparsed share, each capability and each exact combination, all in percent."""
    runs = sum(name.startswith("score@") for name in counts)
    values = {"total": _mean_grade(counts, ""), "unparsed": ratio(counts["unparsed"], counts["n"] * runs)}
    return values | {name: _mean_grade(counts, kind) for name, kind in named_kinds(counts)}


def _mean_grade(counts: Mapping[str, Array], kind: str) -> Array:
    mean = ratio(counts[f"score{kind}"], counts[f"n{kind}"])
    # One NaN grade makes the official mean NaN; here the figure is undefined and says so.
    return np.where(counts[f"nan{kind}"] > 0, np.nan, mean)


@dataclass(eq=False, repr=False)
class MMVet(MMVetQuestions[Grade], ChatJudged[Question, Grade]):
    """MM-Vet as the paper scores it; ``runs`` says how often every answer is graded."""

    name = "mmvet"
    title = "MM-Vet"
    rated_as: ClassVar[Mapping[str, str]] = {SYSTEMONE: "mmvet-systemone"}
    metrics = METRICS
    figures = staticmethod(figures)

    _: KW_ONLY
    runs: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.runs < 1:
            raise InputError(f"{self.runs} grading runs: at least one is needed")

    def _make_ask(self, prompt: str) -> Callable[[Question, str, int], Grade]:
        texts = strings_of(self._prompt_path())
        suffixes = (text for text in texts if text.startswith("\n") and text.endswith("(digit): "))
        return partial(self._grade, prompt, next(suffixes, OWN_SUFFIX))

    def _grade(self, prompt: str, suffix: str, question: Question, answer: str, run: int) -> Grade:
        judge, text = self._chat(), self._filled(prompt, question, answer)
        replies = [judge.ask(user(text, max_tokens=JUDGE_TOKENS, sample=run))]
        read = parse_strict if self.rules == "strict" else parse_official
        score = read(replies[0])
        if self.rules == "official":
            for attempt, temperature in enumerate(RETRY_TEMPERATURES):
                if score is not None:
                    break
                # The first repeat is at temperature 0 too: the number of the attempt keeps its verdict separate.
                sample = run * (len(RETRY_TEMPERATURES) + 1) + attempt + 1
                again = user(text + suffix, temperature=temperature, max_tokens=JUDGE_TOKENS, sample=sample)
                replies.append(judge.ask(again))
                score = read(replies[-1])
        return Grade(0.0 if score is None else score, score is not None, tuple(replies))

    def _item(self, question: Question, answer: str, verdicts: Sequence[Grade]) -> Item:
        return grade_item(question, answer, verdicts, self._combinations)

    def _metrics(self, items: Sequence[Item]) -> dict[str, Estimate]:
        return intervals(
            items, figures, reasons=dict.fromkeys(BASIC_FIGURES, "no such question, or a NaN grade")
        )

    def _scorer(self, counts: Mapping[str, float]) -> dict[str, Any]:
        counted = {name: int(counts.get(f"n:{name}", 0)) for name in CAPABILITIES}
        return {**super()._scorer(counts), "runs": self.runs, "capability_counts": counted}

    def _official(self, items: Sequence[Item]) -> dict[str, float | None]:
        return official_figures(items) if self.rules == "official" else {}


def grade_item(question: Question, answer: str, grades: Sequence[Grade], combinations: list[str]) -> Item:
    """Turn the grades of one answer (one for each run) into an item."""
    scores = [grade.score for grade in grades]
    undefined = any(math.isnan(score) for score in scores)
    mean = 0.0 if undefined else sum(scores) / len(scores)
    counts = {"n": 1.0, "score": mean, "nan": float(undefined)}
    counts["unparsed"] = float(sum(not grade.parsed for grade in grades))
    for run, score in enumerate(scores):
        counts[f"score@{run}"] = 0.0 if math.isnan(score) else score
    for kind, own in kinds(question, combinations):
        counts |= {f"n{kind}": float(own), f"score{kind}": mean * own, f"nan{kind}": float(undefined and own)}
    return Item(
        id=question.id,
        image=question.image,
        counts=counts,
        details={
            **question.report_details(answer),
            "replies": [list(grade.replies) for grade in grades],
            "score": None if undefined else mean,
            "parsed": all(grade.parsed for grade in grades),
        },
    )


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """What the official program writes for items in the file's order: one decimal, and the runs' spread.

    Grades are added one by one and rounded by NumPy, as there: where a figure ends on a half, its last bit
    decides.
    """
    runs = sum(name.startswith("score@") for name in items[0].counts)
    sums: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    for item in items:
        names = ["total", *item.details["capabilities"], "exactly_" + "+".join(item.details["capabilities"])]
        for name in names:
            sizes[name] = sizes.get(name, 0) + 1
            row = sums.setdefault(name, [0.0] * runs)
            for run in range(runs):
                row[run] += math.nan if item.counts["nan"] else item.counts[f"score@{run}"]
    totals = np.array(sums["total"]) / sizes["total"] * 100
    values = {name: (np.array(row) / sizes[name] * 100).mean() for name, row in sorted(sums.items())}
    return {name: _rounded(value) for name, value in (values | {"std": totals.std()}).items()}


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else float(np.round(value, 1))
