"""Detection and mitigation: the score that best detects hallucinated mentions need not remove them best.

1. AUROC of hallucinated against grounded mentions of the base answers, ties counting half; the score is minus the evidence
   of the token emitted at the onset, for DMRR and for the mean probability.
2. Raw score-to-edit control: at every step the candidate with the lowest raw evidence loses beta (no reference, no
   registration; the lower id of equals). Selectivity of the switched windows (``steps``), and the same at the onset.
3. End to end at a matched mean edit: CHAIR, and hallucinated occurrences removed and introduced against the base answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.arms.ablate.arms import RANK
from reweigh.lab.bootstrap import Array, Times, bootstrap, bootstrap_counts
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.analyses.steps import (
    KINDS,
    ONSET,
    WINDOW,
    Count,
    Floats,
    count_switches,
    selectivity,
    switch_rate,
    switches,
)
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.material import BASE, FIGURES, PROBABILITY, Material
from reweigh.lab.paper.study import (
    Dots,
    Filled,
    Study,
    both_kinds,
    enough_images,
    finding,
    mentions_of,
    row,
    too_few_for,
)
from reweigh.lab.runs.diff import compare

VECTORS = {RANK: "dmrr", PROBABILITY: "prob"}
ARMS = tuple(VECTORS)
GAP = "rank minus probability"
DETECTION, CONTROL, END = "detection", "raw control", "end to end"
AUROC, SELECTIVITY = "AUROC", "selectivity"
COUNTED = ("removed", "introduced", "net")
METRICS = FIGURES | {name: name.capitalize() for name in COUNTED}
TEXT, TABLE = "text:detection", "tab:detection-not-mitigation"


class Quantity(NamedTuple):
    """A figure of the raw control."""

    quantity: str
    at: str
    arm: str


def auroc(score: NDArray[Any], positive: NDArray[Any], weight: NDArray[Any] | None = None) -> Floats:
    """Compute the AUROC of mentions (n,) for each row of weights (..., n); NaN where one kind has no weight.

    Examples:
        >>> float(auroc(np.array([0.1, 0.4, 0.4]), np.array([False, False, True])))
        0.75
    """
    order = np.argsort(score, kind="stable")
    ordered, kind = np.asarray(score, float)[order], np.asarray(positive, bool)[order]
    weights = np.ones(len(ordered)) if weight is None else np.asarray(weight, float)[..., order]
    if not len(ordered):
        return np.full(weights.shape[:-1], np.nan)
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    high = np.add.reduceat(weights * kind, starts, axis=-1)
    low = np.add.reduceat(weights * ~kind, starts, axis=-1)
    below = np.cumsum(low, axis=-1) - low
    won = (high * (below + 0.5 * low)).sum(axis=-1)
    pairs = high.sum(axis=-1) * low.sum(axis=-1)
    result = np.full(np.shape(pairs), np.nan)
    np.divide(won, pairs, out=result, where=pairs > 0)
    return result


def raw_edit(ids: NDArray[Any], evidence: NDArray[Any], beta: float) -> Floats:
    """Take beta from the candidate with the lowest evidence, the lower id of equals, and nothing from the others."""
    edit = np.zeros(len(ids))
    edit[np.lexsort((ids, evidence))[0]] = beta
    return edit


def control_counts(image: StudyImage, beta: float) -> dict[Count, float]:
    """Count the windows and onsets of one image that the raw control switches, by arm and kind of mention."""
    switched: dict[tuple[str, ...], list[bool]] = {
        (arm,): [
            switches(ids, logits, raw_edit(ids, image.evidence[vector][ids], beta))
            for ids, logits in image.steps()
        ]
        for arm, vector in VECTORS.items()
    }
    return count_switches(image, switched)


def control_figures(counts: Mapping[Count, Array]) -> dict[Quantity, Array]:
    """Compute switch rates and selectivities of the raw control."""
    found: dict[Quantity, Array] = {}
    for at in (WINDOW, ONSET):
        for arm in VECTORS:
            for kind in KINDS:
                found[Quantity(f"switched before {kind}, %", at, arm)] = switch_rate(counts, (arm, at), kind)
            found[Quantity(SELECTIVITY, at, arm)] = selectivity(counts, (arm, at))
        rank, probability = (found[Quantity(SELECTIVITY, at, arm)] for arm in VECTORS)
        found[Quantity(SELECTIVITY, at, GAP)] = np.asarray(rank - probability)
    return found


def recorded(material: Material) -> list[Row]:
    """Compute what the recorded answers say: detection by both readouts, and the raw control."""
    counts, mentions = [], []
    for number, image in enumerate(material.evaluation):
        counts.append((image.number, control_counts(image, material.beta)))
        for mention in image.mentions:
            token = image.tokens[mention.onset]
            scores = [-float(image.evidence[vector][token]) for vector in VECTORS.values()]
            mentions.append((number, mention.hallucinated, *scores))
    image_of, hallucinated, *score_of = (np.array(column) for column in zip(*mentions, strict=True))

    def detected(times: Times) -> dict[str, float]:
        found = {
            arm: float(auroc(score, hallucinated, times[image_of]))
            for arm, score in zip(ARMS, score_of, strict=True)
        }
        return {**found, GAP: found[RANK] - found[PROBABILITY]}

    found = bootstrap(len(material.evaluation), detected, **material.draws)
    rows = [row(value, part=DETECTION, quantity=AUROC, at="", arm=arm) for arm, value in found.items()]
    control = bootstrap_counts(counts, control_figures, **material.draws)
    rows += [row(value, part=CONTROL, **figure._asdict()) for figure, value in control.items()]
    return rows


class Detection(Study):
    """AUROC of both readouts, the raw control, and both calibrated arms end to end."""

    name = "detection"
    title = "Detection and mitigation"
    labels = (TEXT, TABLE)
    keys = (
        ("part", "detection, raw control, or end to end"),
        ("quantity", "what is measured"),
        ("at", "window or onset for the control, else empty"),
        ("arm", "rank, probability, or rank minus probability"),
    )
    needs = (enough_images, both_kinds)
    panels = (
        Dots(AUROC, {"part": DETECTION, "arm": ARMS}, series="arm", level=0.5),
        Dots(
            "selectivity of the raw control, points",
            {"part": CONTROL, "quantity": SELECTIVITY, "arm": ARMS},
            name="at",
            series="arm",
            zero=True,
        ),
        Dots(
            "end to end, %",
            {"part": END, "quantity": ("chair_s", "chair_i"), "arm": ARMS},
            name=lambda one: METRICS[str(one["quantity"])],
            series="arm",
        ),
    )

    def compute(self, material: Material) -> Frame:
        return Frame([*recorded(material), *end_to_end(material)])

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        rank, probability, gap = (frame.one(part=DETECTION, arm=arm) for arm in (RANK, PROBABILITY, GAP))
        control = frame.one(part=CONTROL, quantity=SELECTIVITY, at=WINDOW, arm=GAP)
        end = frame.one(part=END, quantity="chair_s", arm=GAP)
        few = too_few_for(material, mentions_of(material))
        return [
            f"The AUROC of hallucinated against grounded mentions is {rank.text(digits=3)} by rank and "
            f"{probability.text(digits=3)} by probability. "
            + finding("probability detects better than rank", gap, few=few, above=False, digits=3),
            "Without references and registration, the selectivity of rank minus that of probability is "
            f"{control.text(signed=True, unit=' points')}.",
            finding(
                "rank removes more than probability at the same mean edit (CHAIR_S)",
                end,
                above=False,
                unit=" points",
            ),
        ]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in frame:
            arm, quantity = str(one["arm"]), str(one["quantity"])
            if one["part"] == DETECTION:
                yield Filled(arm, AUROC, one.estimate, TEXT)
            elif one["part"] == END:
                yield Filled(arm, METRICS[quantity], one.estimate, TABLE)
            elif (quantity, one["at"], arm) == (SELECTIVITY, WINDOW, GAP):
                yield Filled("control", "raw rank minus probability", one.estimate, TEXT)


def end_to_end(material: Material) -> Iterator[Row]:
    """Compare both calibrated arms end to end."""
    base, arms = (
        material.base(),
        {RANK: material.rank(), PROBABILITY: material.run(material.arm(PROBABILITY))},
    )
    for arm, run in {BASE: base, **arms}.items():
        found: dict[str, Any] = {figure: run.summary.metrics[figure] for figure in FIGURES}
        if arm != BASE:
            changed = compare(base, run)
            found |= {counted: changed.mentions[counted] for counted in COUNTED}
        for quantity, value in found.items():
            yield row(value, part=END, quantity=quantity, at="", arm=arm)
    for figure, value in material.difference(arms[PROBABILITY], arms[RANK]).items():
        yield row(value, part=END, quantity=figure, at="", arm=GAP)
