"""AMBER, discriminative half: yes/no questions on existence, attributes and relations.

"No" is the positive class: it says that something is absent. Two parsers read an answer: ``official`` accepts exactly
"Yes" or "No", ``strict`` normalizes as the paper does. An answer that is neither is wrong; it costs recall if the
truth is no, and never precision.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from reweigh.errors import InputError
from reweigh.lab.bootstrap import Array, intervals, ratio, sum_counts
from reweigh.lab.estimate import Estimate
from reweigh.lab.tasks.amber import generative
from reweigh.lab.tasks.amber.data import DISCRIMINATIVE, Half
from reweigh.lab.tasks.base import Item, MetricInfo, Response

KINDS: Mapping[str, str] = {
    "discriminative-hallucination": "existence",
    "discriminative-attribute-state": "state",
    "discriminative-attribute-number": "number",
    "discriminative-attribute-action": "action",
}
"""Kinds of questions by the annotation's type; all other types are relations."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "": ("existence", "state", "number", "action", "relation"),
    "existence": ("existence",),
    "attribute": ("state", "number", "action"),
    "state": ("state",),
    "number": ("number",),
    "action": ("action",),
    "relation": ("relation",),
}
"""Reported groups of kinds: all questions together, then each dimension."""

NO_TRUTH = "no question of this kind has the true answer no"
METRICS = (
    MetricInfo("accuracy", "higher", headline=True, undefined="no question of this kind was answered"),
    MetricInfo("precision", "higher", headline=True, undefined="no question of this kind was answered no"),
    MetricInfo("recall", "higher", headline=True, undefined=NO_TRUTH),
    MetricInfo("f1", "higher", title="F1", headline=True, undefined=NO_TRUTH),
    MetricInfo("unparsed", "lower", headline=True, undefined="there are no answers"),
    MetricInfo("answered_yes", title="answered yes", unit="", digits=0),
    MetricInfo("answered_no", title="answered no", unit="", digits=0),
)
"""The metrics of all questions; each dimension has the first four, named ``relation_f1`` and so on."""

_F1_SMOOTHING = {"existence": 0.001}
_LETTERS = re.compile(r"[^\W\d_]+")


def read_official(text: str) -> str | None:
    """Read an answer as the official scorer does: exactly "Yes" or "No"."""
    return {"Yes": "yes", "No": "no"}.get(text)


def read_strict(text: str) -> str | None:
    """Read an answer as the paper does: normalized, and yes or no only if that is its first word.

    The first word is the first run of letters, so "No-one" and "No,Yes" are no, and "yes/no" is yes.

    Examples:
        >>> read_strict(" **No**, it is not."), read_strict("Nope"), read_strict("I say no")
        ('no', None, None)
    """
    normal = unicodedata.normalize("NFKC", text).casefold()
    start = next((index for index, character in enumerate(normal) if not _skipped(character)), len(normal))
    word = _LETTERS.match(normal, start)
    return word.group() if word and word.group() in ("yes", "no") else None


def _skipped(character: str) -> bool:
    """Whether a character may stand before the answer: white space, punctuation, invisible marks."""
    return (
        character.isspace()
        or character in string.punctuation
        or unicodedata.category(character)[0] in ("P", "C")
    )


PARSERS: Mapping[str, Callable[[str], str | None]] = {"strict": read_strict, "official": read_official}


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Compute the unrounded figures of every group from summed counts; percent, NaN where undefined.

    F1 keeps the official smoothing of its denominator. If no is never answered, F1 is 0, not undefined.
    """
    result: dict[str, Array] = {}
    for group, kinds in GROUPS.items():
        questions, correct, truth_no, answered_no, rightly_no = (
            np.sum([counts[f"{kind}.{name}"] for kind in kinds], axis=0)
            for name in ("questions", "correct", "truth_no", "answered_no", "rightly_no")
        )
        precision, recall = ratio(rightly_no, answered_no), ratio(rightly_no, truth_no)
        p, r = np.nan_to_num(precision) / 100, recall / 100
        prefix = f"{group}_" if group else ""
        result[f"{prefix}accuracy"] = ratio(correct, questions)
        result[f"{prefix}precision"] = precision
        result[f"{prefix}recall"] = recall
        result[f"{prefix}f1"] = 100 * (2 * p * r / (p + r + _F1_SMOOTHING.get(group, 0.0001)))
    everything, no = (
        np.sum([counts[f"{kind}.{name}"] for kind in GROUPS[""]], axis=0)
        for name in ("questions", "answered_no")
    )
    said = {"answered_yes": everything - no - counts["unparsed"], "answered_no": no}
    return result | {"unparsed": ratio(counts["unparsed"], everything), **said}


@dataclass(eq=False, repr=False)
class AMBERDiscriminative(Half):
    """AMBER's 14,216 yes/no questions.

    Args:
        data_dir: Folder with ``annotations.json`` and the queries.
        parser: ``strict`` (the paper's) or ``official``; the official printed figures always use ``official``.
    """

    name = "amber-discriminative"
    title = "AMBER, discriminative"
    yes_no = True
    metrics = METRICS
    figures = staticmethod(figures)
    max_new_tokens = 8
    half = DISCRIMINATIVE

    _: KW_ONLY
    parser: str = "strict"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.parser not in PARSERS:
            raise InputError(f"{self.parser!r} is not an AMBER parser", hint=f"use {' or '.join(PARSERS)}")

    def describe(self, items: Sequence[Item]) -> dict[str, Any]:
        """Name the parser and what the bootstrap draws; count the answers that are neither yes nor no, by both parsers."""
        drawn = "images" if self._queries else "questions"
        total = sum_counts(items)
        unparsed = {name: int(total.get(name, 0)) for name in ("unparsed", "unparsed_official")}
        return {"parser": self.parser, "records": len(self._rows), "resampled": drawn, **unparsed}

    def official(self, items: Sequence[Item]) -> Mapping[str, float | None]:
        return official_figures(items)

    def score_response(self, response: Response) -> Item:
        identity = int(response.id)
        row = self._rows[identity]
        kind, truth = _kind(row), row["truth"]
        answer, exact = PARSERS[self.parser](response.text), read_official(response.text)
        counts = _counts(kind, truth, answer) | {
            f"official.{name}": count for name, count in _counts(kind, truth, exact).items()
        }
        return Item(
            id=identity,
            image=self._queries.get(identity, {}).get("image", identity),
            counts=counts | {"unparsed": int(answer is None), "unparsed_official": int(exact is None)},
            details={"kind": kind, "truth": truth, "answer": answer, "correct": answer == truth},
        )


def _kind(row: Mapping[str, Any]) -> str:
    return KINDS.get(row["type"], "relation")


def _counts(kind: str, truth: str, answer: str | None) -> dict[str, float]:
    """Count one answer; counts that are zero are left out."""
    counts = {
        f"{kind}.questions": 1,
        f"{kind}.correct": int(answer == truth),
        f"{kind}.truth_no": int(truth == "no"),
        f"{kind}.answered_no": int(answer == "no"),
        f"{kind}.rightly_no": int(answer == truth == "no"),
    }
    return {name: count for name, count in counts.items() if count}


def official_figures(items: Sequence[Item]) -> dict[str, float | None]:
    """Compute what the official scorer prints, always from exact matches.

    Every counter in a denominator starts at 0.001, so a sum of three at 0.003. Precision and recall are
    rounded to one decimal before F1 is computed from them.
    """
    total = sum_counts(items)
    printed: dict[str, float | None] = {}
    for group, kinds in GROUPS.items():
        # The counters of all questions together are one set, not the sum of the five kinds.
        smoothing = generative.SMOOTHING * (1 if group == "" else len(kinds))

        def share(
            numerator: str, denominator: str, kinds: Any = kinds, smoothing: float = smoothing
        ) -> float:
            top, bottom = (
                sum(total.get(f"official.{kind}.{name}", 0.0) for kind in kinds)
                for name in (numerator, denominator)
            )
            return round(top / (bottom + smoothing) * 100, 1)

        precision, recall = share("rightly_no", "answered_no"), share("rightly_no", "truth_no")
        p, r = precision / 100, recall / 100
        prefix = f"{group}_" if group else ""
        printed[f"{prefix}accuracy"] = share("correct", "questions")
        printed[f"{prefix}precision"] = precision
        printed[f"{prefix}recall"] = recall
        printed[f"{prefix}f1"] = round(2 * p * r / (p + r + _F1_SMOOTHING.get(group, 0.0001)) * 100, 1)
    return printed


def amber_score(descriptions: Sequence[Item], answers: Sequence[Item]) -> Estimate:
    """Compute the AMBER score of both halves, ((100 - CHAIR) + F1) / 2 unrounded, drawing the same images for both."""

    def joined(counts: Mapping[str, Array]) -> dict[str, Array]:
        chair, f1 = generative.figures(counts)["chair"], figures(counts)["f1"]
        return {"amber_score": ((100 - chair) + f1) / 2}

    reason = "it needs mentions in descriptions, and answers to questions whose true answer is no"
    metric = MetricInfo("amber_score", "higher", undefined=reason)
    return intervals([*descriptions, *answers], joined, undefined=lambda _: metric.undefined)[metric.name]
