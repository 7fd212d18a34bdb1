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

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import NumericsError
from reweigh.lab.arms.ablate.arms import BUDGET, RANK
from reweigh.lab.bootstrap import Array, bootstrap_counts, ratio
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses.steps import Field, Floats, Ids, winner
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.corpus.reading import EQUALIZED_PROB, RESCALED_LOGPROB, RESCALED_RANK
from reweigh.lab.paper.material import PROBABILITY, Material
from reweigh.lab.paper.study import (
    Dots,
    Filled,
    Study,
    enough_images,
    finding,
    percent,
    registered,
    row,
    too_few_for,
)
from reweigh.method.readouts import DMRR

RESCALED = {RANK: RESCALED_RANK, PROBABILITY: RESCALED_LOGPROB}
"""The evidence of each arm after the positions exchanged their scales."""
CHANGE, SHIFT, CENTERED = "mean |change of s|", "mean change of s", "mean |change of s|, image shift out"
SPEARMAN, JACCARD = "Spearman of evidence", "Jaccard of edited sets"
STRONGEST, WINNER = "strongest edited changed", "winner changed"
OCCURRENCES, COMPARED, STEPS = "registered occurrences", "steps with two registered", "all steps"
EITHER, BOTH = "either set edits", "both sets edit"
EQUALIZATION, CLOSED, CANDIDATES = "equalization", "gap closed by equalization", "candidate occurrences"


class Quantity(NamedTuple):
    """What is measured, and what it is a mean or share of."""

    quantity: str
    over: str


MOVED = tuple(Quantity(quantity, OCCURRENCES) for quantity in (CHANGE, SHIFT, CENTERED))
SETS = tuple(Quantity(quantity, over) for quantity in (JACCARD, STRONGEST) for over in (EITHER, BOTH))
FIGURES = (*MOVED, Quantity(SPEARMAN, COMPARED), *SETS, Quantity(WINNER, STEPS))
STILL = (*MOVED, *SETS[2:], Quantity(WINNER, STEPS))
"""What must be exactly zero for the rank arm."""


Counts = Mapping[Quantity, float]
"""Sums of a figure's numerator; its denominator is under the figure ``("", over)``."""


def ranks(values: Floats) -> Floats:
    """Rank values from 1, the mean rank for equals."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[place]


def spearman(first: Floats, second: Floats) -> float:
    """Compute Spearman's correlation; NaN for fewer than two values, or if one side is constant."""
    if len(first) < 2:
        return float("nan")
    one, other = (ranks(values) - (len(values) + 1) / 2 for values in (first, second))
    norm = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / norm) if norm else float("nan")


def strongest(ids: Ids, s: Floats) -> int | None:
    """Return the edited token with the largest strength, the lower id of equals; None if nothing is edited."""
    edited = s > 0
    return int(ids[edited][np.lexsort((ids[edited], -s[edited]))[0]]) if edited.any() else None


def step_counts(
    ids: Ids, logits: NDArray[Any], evidence: tuple[Floats, Floats], s: tuple[Floats, Floats], beta: float
) -> Counts:
    """Count one step before and after; ``evidence`` is that of the registered candidates, ``s`` of all."""
    before, after = s
    raw = logits.astype(np.float64)
    won = winner(ids, raw - beta * before) != winner(ids, raw - beta * after)
    found: dict[Quantity, float] = {Quantity("", STEPS): 1, Quantity(WINNER, STEPS): won}
    correlation = spearman(*evidence)
    if not np.isnan(correlation):
        found |= {Quantity("", COMPARED): 1, Quantity(SPEARMAN, COMPARED): correlation}
    one, other = set(ids[before > 0].tolist()), set(ids[after > 0].tolist())
    for over, counts in ((EITHER, one or other), (BOTH, one and other)):
        if counts:
            found[Quantity("", over)] = 1
            found[Quantity(JACCARD, over)] = len(one & other) / len(one | other)
            found[Quantity(STRONGEST, over)] = strongest(ids, before) != strongest(ids, after)
    return found


def image_counts(image: StudyImage, field: Field, rescaled: str, beta: float) -> Counts:
    """Add up the counts of one image under one arm."""
    ids, known = image.candidates, field.registered(image.candidates)
    x, moved = field.evidence(image, ids), image.evidence[rescaled][ids].astype(np.float64)
    shift = (moved - x)[known].mean() if known.any() else 0.0
    before, after, centered = (field.strengths(ids, one) for one in (x, moved, moved - shift))
    change = (after - before)[known]
    sums = (np.abs(change).sum(), change.sum(), np.abs((centered - before)[known]).sum())
    counts = Counter({figure: float(total) for figure, total in zip(MOVED, sums, strict=True)})
    counts[Quantity("", OCCURRENCES)] = len(change)
    for part in (slice(*image.first[step : step + 2]) for step in range(len(image))):
        own = known[part]
        evidence = x[part][own], moved[part][own]
        counts.update(step_counts(ids[part], image.logits[part], evidence, (before[part], after[part]), beta))
    return counts


def figures(counts: Mapping[Quantity, Array]) -> dict[Quantity, Array]:
    """Compute means and shares from summed counts."""
    return {one: ratio(counts[one], counts[Quantity("", one.over)], scale=1.0) for one in FIGURES}


def closure_counts(image: StudyImage, rank: Field, fields: Mapping[str, Field]) -> dict[str, float]:
    """Sum the distances to the rank arm's edits over all candidate occurrences of one image."""
    ids = image.candidates

    def edits(field: Field) -> Floats:
        return field.factor * field.strengths(ids, field.evidence(image, ids))

    ranked = edits(rank)
    found = {name: float(np.abs(edits(field) - ranked).sum()) for name, field in fields.items()}
    return {**found, CANDIDATES: len(ids)}


def closure(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Compute 1 - mean|equalized - dmrr| / mean|prob - dmrr|; both means are over the same occurrences."""
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
    needs = (enough_images, registered(*RESCALED))
    panels = (
        Dots(
            "change of the suppression strength",
            {"arm": tuple(RESCALED), "quantity": (CHANGE, SHIFT, CENTERED)},
            series="arm",
            zero=True,
        ),
        Dots(
            "correlation, or share of steps",
            {"arm": tuple(RESCALED), "over": (COMPARED, EITHER, STEPS)},
            series="arm",
        ),
    )
    stacked = True

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
        moved, left, steps = (
            frame.one(arm=PROBABILITY, quantity=name) for name in (CHANGE, CENTERED, WINNER)
        )
        closed = frame.one(quantity=CLOSED)
        lines = [
            f"When positions exchange their scales, the probability arm's strengths change by {moved.text(digits=4)} on "
            f"average ({left.text(digits=4)} with each image's mean shift taken out), and the winner changes at "
            f"{percent(steps).text(1, unit='%')} of all steps.",
            "The rank arm's evidence, and with it every edit, stays the same to the last bit.",
        ]
        claim = "equalizing the scales closes a small part of the distance between probability and rank edits"
        return [*lines, finding(claim, percent(closed), few=too_few_for(material), digits=1, unit="%")]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        shown = {
            SPEARMAN: "Spearman",
            JACCARD: "Jaccard",
            STRONGEST: "strongest changed %",
            WINNER: "winner changed %",
            CLOSED: "gap closed %",
        }
        for one in frame:
            arm, quantity = str(one["arm"]), str(one["quantity"])
            if quantity == CHANGE:
                yield Filled(arm, CHANGE, one.estimate)
            elif quantity in shown and arm != RANK and one["over"] != BOTH:
                metric = shown[quantity]
                yield Filled(arm, metric, percent(one.estimate) if metric.endswith("%") else one.estimate)


def check_ranks(image: StudyImage) -> None:
    """Refuse an image whose rank evidence moved by a bit."""
    if not np.array_equal(image.evidence[DMRR], image.evidence[RESCALED_RANK]):
        raise NumericsError(
            f"rescaling changed the ranks of image {image.id}, which it must not",
            hint="two logits became equal; this is a bug in reweigh; please report it",
        )


def check_exact(counts: Sequence[tuple[int, Counts]]) -> None:
    """Refuse any change of the rank arm: it must be exactly zero."""
    if any(own[figure] != 0 for _, own in counts for figure in STILL):
        raise NumericsError("the rank arm's edits changed under rescaling, which they must not")
