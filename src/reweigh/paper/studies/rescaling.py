"""Order-preserving rescaling: what an edit does when positions exchange their scales and keep every rank.

z_j = sigma_j u_j; position j is given the scale sigma_pi(j) of another position of its image. Tables stay as calibrated.
Over the registered candidate occurrences of base trajectories, with s before and s' after: mean |s' - s|, mean of s' - s,
and mean |(s' - s) - its mean over the image|. Within a step: Spearman's correlation of the registered candidates' evidence
before and after (at least two; undefined ones left out), Jaccard index of the edited sets {s > 0}, whether the strongest
edited candidate changes (the lower id of equals), over steps where either set is non-empty and where both are; over all
steps, whether the candidate-local winner after the edit changes. The rank arm's evidence must be bit-identical: every
change of it is exactly 0.

Equalization closure: with the edits (beta_arm / beta) s over all candidate occurrences, 0 where a token is not registered,
closed = 1 - mean|equalized - dmrr| / mean|prob - dmrr|, of mean probability at a refit beta, from the logits as they are and
from equalized ones; it may be negative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.types import Item
from reweigh.errors import NumericsError
from reweigh.estimate import Estimate
from reweigh.experiments.readouts import BUDGET, RANK
from reweigh.method.readouts import DMRR
from reweigh.paper.analyses.rescaling import (
    BOTH,
    COMPARED,
    EITHER,
    JACCARD,
    SPEARMAN,
    STEPS,
    STRONGEST,
    WINNER,
    Field,
    step_change,
    step_counts,
)
from reweigh.paper.analyses.words import show
from reweigh.paper.corpus.image import (
    EQUALIZED_PROB,
    RESCALED_LOGPROB,
    RESCALED_RANK,
    StudyImage,
)
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import (
    ESTIMATE,
    Column,
    Row,
    Study,
    as_estimate,
    estimate,
    find,
    too_few_images,
)

PROBABILITY = "probability"
VECTORS = {RANK: (DMRR, RESCALED_RANK), PROBABILITY: ("logprob", RESCALED_LOGPROB)}
"""Evidence before and after, by arm."""
CHANGE, SHIFT, CENTRED = "mean |change of s|", "mean change of s", "mean |change of s|, image shift out"
CLOSED = "gap closed by equalization"
OCCURRENCES = "registered occurrences"


def image_counts(image: StudyImage, field: Field, names: tuple[str, str], beta: float) -> dict[str, float]:
    """Additive counts of one image under one arm."""
    ids = image.candidates
    before, after = (field.strengths(ids, image.evidence[name]) for name in names)
    known = field.registered(ids)
    change = (after - before)[known]
    steps = [
        step_change(
            ids[part],
            image.logits[part],
            tuple(image.evidence[name][ids[part][known[part]]].astype(np.float64) for name in names),  # type: ignore[arg-type]
            (before[part], after[part]),
            beta,
        )
        for part in (slice(*image.first[step : step + 2]) for step in range(len(image)))
    ]
    return {
        OCCURRENCES: len(change),
        CHANGE: float(np.abs(change).sum()),
        SHIFT: float(change.sum()),
        CENTRED: float(np.abs(change - change.mean()).sum()) if len(change) else 0.0,
        **step_counts(steps),
    }


DENOMINATORS = {
    CHANGE: OCCURRENCES,
    SHIFT: OCCURRENCES,
    CENTRED: OCCURRENCES,
    SPEARMAN: COMPARED,
    f"{JACCARD}/{EITHER}": EITHER,
    f"{JACCARD}/{BOTH}": BOTH,
    f"{STRONGEST}/{EITHER}": EITHER,
    f"{STRONGEST}/{BOTH}": BOTH,
    WINNER: STEPS,
}


def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
    """Means and shares from summed counts."""
    return {name: ratio(counts[name], counts[over], scale=1.0) for name, over in DENOMINATORS.items()}


def closure(counts: Mapping[str, Array]) -> dict[str, Array]:
    """1 - mean|equalized - dmrr| / mean|prob - dmrr|; both means are over the same occurrences."""
    return {CLOSED: 1 - ratio(counts["equalized"], counts["original"], scale=1.0)}


def closure_counts(image: StudyImage, fields: Mapping[str, Field]) -> dict[str, float]:
    """Sums of the distances to the rank arm's edits over all candidate occurrences of one image."""
    ids = image.candidates
    ranked = fields[RANK].edits(ids, image.evidence[DMRR])
    return {
        name: float(np.abs(fields[name].edits(ids, image.evidence[vector]) - ranked).sum())
        for name, vector in (("original", "prob"), ("equalized", EQUALIZED_PROB))
    } | {"occurrences": len(ids)}


class Rescaling(Study):
    """Change of both arms' edits when positions exchange their scales, and what equalization closes."""

    name = "rescaling"
    title = "Order-preserving rescaling"
    reproduces = "Tab. rescale-invariance"
    columns = (
        Column(
            "arm", "text", "rank, probability (log mean probability at its matched scale), or equalization"
        ),
        Column("quantity", "text", "what is measured"),
        Column("over", "text", "what it is a mean or share of"),
        Column("count", "integer", "how many of these there are"),
        *ESTIMATE,
    )

    def unmet(self, material: Material) -> str | None:
        if reason := too_few_images(material):
            return reason
        for name in VECTORS:
            if not len(material.arm(name).table):
                return f"the {name} arm registers no token"
        return None

    def rows(self, material: Material) -> list[Row]:
        size = material.evaluation.vocab_size
        arms = {name: Field(material.arm(name).table, size) for name in VECTORS}
        budget, even = material.arm(BUDGET), material.arm(BUDGET, evidence=EQUALIZED_PROB)
        closing = {
            RANK: arms[RANK],
            "original": Field(budget.table, size, budget.factor),
            "equalized": Field(even.table, size, even.factor),
        }
        items: dict[str, list[Item]] = {name: [] for name in (*VECTORS, CLOSED)}
        for image in material.evaluation:
            check_ranks(image)
            counted = {
                name: image_counts(image, arms[name], VECTORS[name], material.beta) for name in VECTORS
            }
            counted[CLOSED] = closure_counts(image, closing)
            for name, counts in counted.items():
                items[name].append(Item(id=image.id, image=image.number, counts=counts))
        return table(items, resamples=material.resamples, seed=material.seed)

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        moved, steps = (find(rows, arm=PROBABILITY, quantity=name) for name in (CHANGE, WINNER))
        closed = find(rows, arm="equalization", quantity=CLOSED)
        lines = [
            f"When positions exchange their scales, the probability arm's strengths move by {show(moved, digits=4)} on "
            f"average and {100 * steps['value']:.1f}% of all steps get another winner; the rank arm's evidence stays "
            "the same to the last bit, and with it every edit.",
            f"Equalizing the scales closes {show(closed, digits=3)} of the distance between probability and rank edits.",
        ]
        if closed["value"] is not None and closed["value"] < 0:
            lines.append(
                "That it closes a small part, as the paper finds, does not show here: it widens the distance."
            )
        elif closed["low"] is not None and closed["low"] <= 0:
            lines.append(
                "That it closes a part, as the paper finds, cannot be told here: the interval includes zero."
            )
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        short = {CHANGE: "mean |Δs|", SHIFT: "mean Δs", CENTRED: "mean |Δs|, image shift out"}
        with chart(path, rows=2, height=4.0) as (upper, lower):
            for panel, names, label in (
                (upper, (CHANGE, SHIFT, CENTRED), "change of the suppression strength"),
                (lower, (SPEARMAN, JACCARD, STRONGEST, WINNER), "correlation, or share of steps"),
            ):
                series = {
                    arm: {
                        str(short.get(row["quantity"], row["quantity"])): as_estimate(row)
                        for row in rows
                        if row["arm"] == arm and row["quantity"] in names and row["over"] != BOTH
                    }
                    for arm in VECTORS
                }
                dots(panel, series, zero=panel is upper, label=label)


def check_ranks(image: StudyImage) -> None:
    """The rank arm's evidence may not move by a bit."""
    if not np.array_equal(image.evidence[DMRR], image.evidence[RESCALED_RANK]):
        raise NumericsError(
            f"rescaling moved the ranks of image {image.id}, which it must not",
            hint="two logits became equal; this is a defect of reweigh, please report it",
        )


def check_exact(items: Sequence[Item]) -> None:
    """Every change of the rank arm is zero: not nearly, exactly."""
    changes = (CHANGE, SHIFT, CENTRED, WINNER, f"{STRONGEST}/{EITHER}", f"{STRONGEST}/{BOTH}")
    if any(item.counts[name] != 0 for item in items for name in changes):
        raise NumericsError("the rank arm's edits moved under rescaling, which they must not")


def table(items: Mapping[str, Sequence[Item]], *, resamples: int, seed: int) -> list[Row]:
    """The rows from counted images by arm."""
    options: dict[str, Any] = {"resamples": resamples, "seed": seed}
    rows: list[Row] = []
    check_exact(items[RANK])
    for arm in VECTORS:
        found = intervals(items[arm], figures, **options)
        for name, over in DENOMINATORS.items():
            count = sum(int(item.counts[over]) for item in items[arm])
            about = {"arm": arm, "quantity": name.partition("/")[0], "over": over, "count": count}
            rows.append({**about, **estimate(found[name])})
    closed: Estimate = intervals(items[CLOSED], closure, **options)[CLOSED]
    count = sum(int(item.counts["occurrences"]) for item in items[CLOSED])
    about = {"arm": "equalization", "quantity": CLOSED, "over": "candidate occurrences", "count": count}
    rows.append({**about, **estimate(closed)})
    return rows
