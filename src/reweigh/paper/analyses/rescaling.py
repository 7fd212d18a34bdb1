"""Order-preserving rescaling: what an edit does when positions exchange their scales and keep every rank.

z_j = sigma_j u_j; position j gets the scale sigma_pi(j) of another position of its image. Tables stay as calibrated. Over
the registered candidate occurrences of base trajectories, with evidence x and strength s before, x' and s' after:
mean |s' - s|, mean of s' - s, and mean |s'' - s| with s'' the strength of x' - m, where m is the image's mean of x' - x over
these occurrences: what is left of the change once the image's mean shift of the log-probabilities is taken out. Within a
step: Spearman's correlation of the registered candidates' evidence before and after (at least two; undefined ones left
out), Jaccard index of the edited sets {s > 0}, whether the strongest edited candidate changes (the lower id of equals), over
steps where either set is non-empty and where both are; over all steps, whether the candidate-local winner after the edit
changes. The rank arm's evidence must be bit-identical: every change of it is exactly 0.

Equalization closure: with the edits (beta_arm / beta) s over all candidate occurrences, 0 where a token is not registered,
closed = 1 - mean|equalized - dmrr| / mean|prob - dmrr|, of mean probability at a refit beta, from the logits as they are and
from equalized ones; it may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import Array, ratio
from reweigh.errors import NumericsError
from reweigh.estimate import Estimate
from reweigh.experiments.readouts import BUDGET
from reweigh.method.readouts import DMRR
from reweigh.paper.analyses.steps import PROBABILITY, RANK, Field, Floats, Ids, winner
from reweigh.paper.bootstrap import bootstrap_counts
from reweigh.paper.corpus.image import EQUALIZED_PROB, RESCALED_LOGPROB, RESCALED_RANK, StudyImage
from reweigh.paper.material import Material
from reweigh.paper.study import Entries, Entry, Study, percent, row, too_few_images
from reweigh.results.frame import Frame, Row

RESCALED = {RANK: RESCALED_RANK, PROBABILITY: RESCALED_LOGPROB}
"""The evidence of each arm after the positions exchanged their scales."""
CHANGE, SHIFT, CENTRED = "mean |change of s|", "mean change of s", "mean |change of s|, image shift out"
SPEARMAN, JACCARD = "Spearman of evidence", "Jaccard of edited sets"
STRONGEST, WINNER = "strongest edited changed", "winner changed"
OCCURRENCES, COMPARED, STEPS = "registered occurrences", "steps with two registered", "all steps"
EITHER, BOTH = "either set edits", "both sets edit"
EQUALIZATION, CLOSED, CANDIDATES = "equalization", "gap closed by equalization", "candidate occurrences"


class Quantity(NamedTuple):
    """What is measured, and what it is a mean or share of."""

    quantity: str
    over: str


MOVED = tuple(Quantity(quantity, OCCURRENCES) for quantity in (CHANGE, SHIFT, CENTRED))
SETS = tuple(Quantity(quantity, over) for quantity in (JACCARD, STRONGEST) for over in (EITHER, BOTH))
FIGURES = (*MOVED, Quantity(SPEARMAN, COMPARED), *SETS, Quantity(WINNER, STEPS))
STILL = (*MOVED, *SETS[2:], Quantity(WINNER, STEPS))
"""What must be exactly zero for the rank arm."""


@dataclass(frozen=True)
class StepChange:
    """What rescaling does to one step."""

    spearman: float
    either: bool
    both: bool
    jaccard: float
    strongest: bool
    winner: bool


def ranks(values: Floats) -> Floats:
    """Ranks from 1, the mean rank for equals."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's correlation; NaN for fewer than two values, or where one side is constant."""
    if len(first) < 2:
        return float("nan")
    one, other = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / norm) if norm else float("nan")


def strongest(ids: Ids, s: Floats) -> int | None:
    """The edited token with the largest strength, the lower id of equals; ``None`` if nothing is edited."""
    edited = s > 0
    return int(ids[edited][np.lexsort((ids[edited], -s[edited]))[0]]) if edited.any() else None


def step_change(
    ids: Ids, logits: NDArray[Any], evidence: tuple[Floats, Floats], s: tuple[Floats, Floats], beta: float
) -> StepChange:
    """Compare one step before and after; ``evidence`` is that of the registered candidates, ``s`` of all."""
    before, after = s
    one, other = set(ids[before > 0].tolist()), set(ids[after > 0].tolist())
    raw = logits.astype(np.float64)
    return StepChange(
        spearman=spearman(*evidence),
        either=bool(one | other),
        both=bool(one and other),
        jaccard=len(one & other) / len(one | other) if one | other else float("nan"),
        strongest=strongest(ids, before) != strongest(ids, after),
        winner=winner(ids, raw - beta * before) != winner(ids, raw - beta * after),
    )


Counts = dict[Quantity, float]
"""Sums of a figure's numerator; its denominator is under the figure ``("", over)``."""


def image_counts(image: StudyImage, field: Field, rescaled: str, beta: float) -> Counts:
    """Additive counts of one image under one arm."""
    ids, known = image.candidates, field.registered(image.candidates)
    x, moved = field.evidence(image, ids), image.evidence[rescaled][ids].astype(np.float64)
    shift = (moved - x)[known].mean() if known.any() else 0.0
    before, after, centred = (field.strengths(ids, one) for one in (x, moved, moved - shift))
    change = (after - before)[known]
    steps = [
        step_change(
            ids[part],
            image.logits[part],
            (x[part][known[part]], moved[part][known[part]]),
            (before[part], after[part]),
            beta,
        )
        for part in (slice(*image.first[step : step + 2]) for step in range(len(image)))
    ]
    sums = (np.abs(change).sum(), change.sum(), np.abs((centred - before)[known]).sum())
    found = {figure: float(total) for figure, total in zip(MOVED, sums, strict=True)}
    return {**found, Quantity("", OCCURRENCES): len(change), **step_counts(steps)}


def step_counts(steps: Sequence[StepChange]) -> Counts:
    """Additive counts of some steps."""
    defined = [step.spearman for step in steps if not np.isnan(step.spearman)]
    found: Counts = {
        Quantity("", STEPS): len(steps),
        Quantity(WINNER, STEPS): sum(step.winner for step in steps),
        Quantity("", COMPARED): len(defined),
        Quantity(SPEARMAN, COMPARED): sum(defined),
    }
    chosen = {EITHER: [one for one in steps if one.either], BOTH: [one for one in steps if one.both]}
    for over, some in chosen.items():
        found[Quantity("", over)] = len(some)
        found[Quantity(JACCARD, over)] = sum(step.jaccard for step in some)
        found[Quantity(STRONGEST, over)] = sum(step.strongest for step in some)
    return found


def figures(counts: Mapping[Quantity, Array]) -> dict[Quantity, Array]:
    """Means and shares from summed counts."""
    return {one: ratio(counts[one], counts[Quantity("", one.over)], scale=1.0) for one in FIGURES}


def closure_counts(image: StudyImage, rank: Field, fields: Mapping[str, Field]) -> dict[str, float]:
    """Sums of the distances to the rank arm's edits over all candidate occurrences of one image."""
    ids = image.candidates

    def edits(field: Field) -> Floats:
        return field.factor * field.strengths(ids, field.evidence(image, ids))

    ranked = edits(rank)
    found = {name: float(np.abs(edits(field) - ranked).sum()) for name, field in fields.items()}
    return {**found, CANDIDATES: len(ids)}


def closure(counts: Mapping[str, Array]) -> dict[str, Array]:
    """1 - mean|equalized - dmrr| / mean|prob - dmrr|; both means are over the same occurrences."""
    return {CLOSED: 1 - ratio(counts["equalized"], counts["original"], scale=1.0)}


class Rescaling(Study):
    """Change of both arms' edits when positions exchange their scales, and what equalization closes."""

    name = "rescaling"
    title = "Order-preserving rescaling"
    labels = ("tab:rescale-invariance",)
    keys = (
        ("arm", "rank, probability (log mean probability at its matched scale), or equalization"),
        ("quantity", "what is measured"),
        ("over", "what it is a mean or share of"),
        ("count", "how many of these there are"),
    )

    def unmet(self, material: Material) -> str | None:
        if reason := too_few_images(material):
            return reason
        empty = [name for name in RESCALED if not len(material.arm(name).table)]
        return f"the {empty[0]} arm registers no token" if empty else None

    def compute(self, material: Material) -> Frame:
        size = material.evaluation.vocab_size
        arms = {name: Field.of(material.arm(name), size) for name in RESCALED}
        even = material.arm(BUDGET, evidence=EQUALIZED_PROB)
        fields = {
            "original": Field.of(material.arm(BUDGET), size, vector="prob"),
            "equalized": Field.of(even, size, vector=EQUALIZED_PROB),
        }
        counts: dict[str, list[tuple[int, Counts]]] = {name: [] for name in arms}
        gaps: list[tuple[int, dict[str, float]]] = []
        for image in material.evaluation:
            check_ranks(image)
            for name, field in arms.items():
                counts[name].append((image.number, image_counts(image, field, RESCALED[name], material.beta)))
            gaps.append((image.number, closure_counts(image, arms[RANK], fields)))
        check_exact(counts[RANK])
        rows: list[Row] = []
        for arm, some in counts.items():
            found = bootstrap_counts(some, figures, **material.draws)
            for figure in FIGURES:
                total = sum(int(own[Quantity("", figure.over)]) for _, own in some)
                rows.append(row(found[figure], arm=arm, **figure._asdict(), count=total))
        closed = bootstrap_counts(gaps, closure, **material.draws)[CLOSED]
        total = sum(int(own[CANDIDATES]) for _, own in gaps)
        return Frame([*rows, row(closed, arm=EQUALIZATION, quantity=CLOSED, over=CANDIDATES, count=total)])

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        moved, left, steps = (frame.one(arm=PROBABILITY, quantity=name) for name in (CHANGE, CENTRED, WINNER))
        closed = frame.one(quantity=CLOSED)
        lines = [
            f"When positions exchange their scales, the probability arm's strengths change by {moved.text(digits=4)} on "
            f"average ({left.text(digits=4)} with each image's mean shift taken out) and the winner changes at "
            f"{100 * steps.number:.1f}% of all steps; the rank arm's evidence, and with it every edit, stays the same to "
            "the last bit.",
            f"Equalizing the scales closes {closed.text(digits=3)} of the distance between probability and rank edits.",
        ]
        if closed.value is not None and closed.value < 0:
            lines.append("The paper finds that it closes a small part of the distance; here it widens it.")
        elif closed.low is not None and closed.low <= 0:
            lines.append(
                "Whether it closes a part, as in the paper, cannot be decided here: the interval includes zero."
            )
        return lines

    def draw(self, frame: Frame, path: Path) -> None:
        from reweigh.results.charts import chart, dots

        short = {CHANGE: "mean |Δs|", SHIFT: "mean Δs", CENTRED: "mean |Δs|, image shift out"}
        with chart(path, rows=2, height=4.0) as (upper, lower):
            for panel, names, label in (
                (upper, (CHANGE, SHIFT, CENTRED), "change of the suppression strength"),
                (lower, (SPEARMAN, JACCARD, STRONGEST, WINNER), "correlation, or share of steps"),
            ):
                series = {
                    arm: {
                        short.get(str(one["quantity"]), str(one["quantity"])): one.estimate
                        for one in frame.pick(arm=arm, quantity=names)
                        if one["over"] != BOTH
                    }
                    for arm in RESCALED
                }
                dots(panel, series, zero=panel is upper, label=label)

    def fill(self, frame: Frame) -> dict[str, Entries]:
        shown = {
            SPEARMAN: "Spearman",
            JACCARD: "Jaccard",
            STRONGEST: "strongest changed %",
            WINNER: "winner changed %",
            CLOSED: "gap closed %",
        }
        found: dict[Entry, Estimate] = {}
        for one in frame:
            arm, quantity = str(one["arm"]), str(one["quantity"])
            if quantity == CHANGE:
                found[Entry(arm, CHANGE)] = one.estimate
            elif quantity in shown and arm != RANK and one["over"] != BOTH:
                metric = shown[quantity]
                found[Entry(arm, metric)] = percent(one.estimate) if metric.endswith("%") else one.estimate
        return {"tab:rescale-invariance": found}


def check_ranks(image: StudyImage) -> None:
    """The rank arm's evidence may not move by a bit."""
    if not np.array_equal(image.evidence[DMRR], image.evidence[RESCALED_RANK]):
        raise NumericsError(
            f"rescaling changed the ranks of image {image.id}, which it must not",
            hint="two logits became equal; this is a bug in reweigh; please report it",
        )


def check_exact(counts: Sequence[tuple[int, Counts]]) -> None:
    """Every change of the rank arm is exactly zero."""
    if any(own[figure] != 0 for _, own in counts for figure in STILL):
        raise NumericsError("the rank arm's edits changed under rescaling, which they must not")
