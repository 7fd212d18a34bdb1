"""Detection is not mitigation: what tells hallucinated mentions apart best need not remove them best.

1. AUROC of hallucinated against grounded mentions that the base answers make, score = minus the evidence of the token
   emitted at the onset, for DMRR and for the mean probability.
2. Raw score-to-edit control: at every step the candidate of lowest raw evidence loses beta (no reference, no
   registration). A mention's window is the four steps before its onset; it is switched if the winner changes at any of
   them. Selectivity = switch rate before hallucinated mentions minus that before grounded ones. The same at the onset.
3. End to end at a matched mean edit: CHAIR, and hallucinated occurrences removed and introduced against the base answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.benchmarks.bootstrap import Array, intervals, ratio
from reweigh.benchmarks.types import Item
from reweigh.paper.analyses.detection import auroc
from reweigh.paper.analyses.windows import (
    GROUNDED,
    HALLUCINATED,
    count_windows,
    first_switch,
    raw_edit,
    selectivity,
    switches,
)
from reweigh.paper.analyses.words import finding, show
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.studies.bootstrap import Times, bootstrap
from reweigh.paper.studies.endtoend import FIGURES, PROBABILITY, RANK, EndToEnd, difference
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
from reweigh.runs.diff import compare

VECTORS = {RANK: "dmrr", PROBABILITY: "prob"}
GAP = "rank minus probability"
AUROC, CONTROL, END = "detection", "raw control", "end to end"
WINDOW, ONSET = "window", "onset"
COUNTED = ("removed", "introduced", "net")


class Detection(Study):
    """AUROC of both readouts, the raw control, and both calibrated arms end to end."""

    name = "detection"
    title = "Detection is not mitigation"
    reproduces = "Tab. detection-not-mitigation"
    columns = (
        Column("part", "text", "detection, raw control, or end to end"),
        Column("quantity", "text", "what is measured"),
        Column("at", "text", "window or onset for the control, else empty"),
        Column("arm", "text", "rank, probability, or rank minus probability"),
        *ESTIMATE,
    )

    def unmet(self, material: Material) -> str | None:
        return too_few_images(material) or lacks_mentions(material)

    def rows(self, material: Material) -> list[Row]:
        scores, items = read(material)
        return [*detection_rows(scores, material), *control_rows(items, material), *end_rows(material)]

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        rank, probability = (find(rows, part=AUROC, quantity="AUROC", arm=arm) for arm in (RANK, PROBABILITY))
        gap = find(rows, part=AUROC, quantity="AUROC", arm=GAP)
        control = find(rows, part=CONTROL, quantity="selectivity", at=WINDOW, arm=GAP)
        lines = [
            f"AUROC of hallucinated against grounded mentions is {show(rank, digits=3)} by rank and "
            f"{show(probability, digits=3)} by probability. "
            + finding("probability detects better than rank", gap, above=False, digits=3),
            "Without references and registration the selectivity of rank minus that of probability is "
            f"{show(control, signed=True, unit=' points')}.",
        ]
        if ends := [row for row in rows if row["part"] == END]:
            gap = find(ends, quantity="chair_s", arm=GAP)
            lines.append(
                finding("rank removes more than probability at the same mean edit (CHAIR_S)", gap, above=False,
                        unit=" points"))  # fmt: skip
        else:
            lines.append("The end-to-end comparison was not run: no model is at hand.")
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        arms = {RANK: RANK, PROBABILITY: PROBABILITY}
        with chart(path, columns=3, height=2.6) as panels:
            found = [row for row in rows if row["part"] == AUROC]
            dots(
                panels[0], {arm: {"AUROC": as_estimate(find(found, arm=arm))} for arm in arms}, label="AUROC"
            )
            panels[0].axvline(0.5, color="#68727f", lw=0.9, ls="--")
            control = {
                arm: {
                    at: as_estimate(find(rows, part=CONTROL, quantity="selectivity", at=at, arm=arm))
                    for at in (WINDOW, ONSET)
                }
                for arm in arms
            }
            dots(panels[1], control, zero=True, label="selectivity of the raw control, points")
            ends = [row for row in rows if row["part"] == END]
            shown = {
                arm: {
                    name: as_estimate(find(ends, quantity=name.lower(), arm=arm))
                    for name in ("CHAIR_S", "CHAIR_I")
                }
                for arm in arms
                if ends
            }
            dots(panels[2], shown, label="end to end, %")


def lacks_mentions(material: Material) -> str | None:
    """Why hallucinated and grounded mentions cannot be compared; ``None`` if they can."""
    kinds = {mention.hallucinated for image in material.evaluation for mention in image.mentions}
    if True not in kinds:
        return "the base answers make no hallucinated mention"
    return None if False in kinds else "the base answers make no grounded mention"


def kinds_of(image: StudyImage) -> list[str]:
    """The kind of each mention."""
    return [HALLUCINATED if mention.hallucinated else GROUNDED for mention in image.mentions]


def read(material: Material) -> tuple[dict[str, Any], list[Item]]:
    """Scores of all mentions with their images, and the counts of the control, from one pass over the corpus."""
    rows: list[tuple[int, bool, float, float]] = []
    items = []
    for number, image in enumerate(material.evaluation):
        for mention in image.mentions:
            token = image.tokens[mention.onset]
            scores = (-float(image.evidence[vector][token]) for vector in VECTORS.values())
            rows.append((number, mention.hallucinated, *scores))  # type: ignore[arg-type]
        items.append(Item(id=image.id, image=image.number, counts=control_counts(image, material.beta)))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return dict(zip(("image", "hallucinated", *VECTORS), columns, strict=True)), items


def control_counts(image: StudyImage, beta: float) -> dict[str, float]:
    """How many windows and onsets of one image the raw control switches, by arm and kind of mention."""
    flags: dict[str, list[bool]] = {}
    for arm, vector in VECTORS.items():
        switched = []
        for step in range(len(image)):
            ids, logits = image.step(step)
            switched.append(switches(ids, logits, raw_edit(ids, image.evidence[vector][ids], beta)))
        onsets = [mention.onset for mention in image.mentions]
        flags[f"{arm} {WINDOW}"] = [first_switch(switched, onset) is not None for onset in onsets]
        flags[f"{arm} {ONSET}"] = [switched[onset] for onset in onsets]
    return count_windows(kinds_of(image), flags)


def detection_rows(scores: Mapping[str, Any], material: Material) -> list[Row]:
    """AUROC of both readouts and their difference."""

    def figures(times: Times) -> dict[str, float]:
        weight = times[scores["image"]]
        found = {arm: float(auroc(scores[arm], scores["hallucinated"], weight)) for arm in VECTORS}
        return {**found, GAP: found[RANK] - found[PROBABILITY]}

    images = len(material.evaluation)
    found = bootstrap(images, figures, resamples=material.resamples, seed=material.seed)
    return [
        {"part": AUROC, "quantity": "AUROC", "at": "", "arm": arm, **estimate(value)}
        for arm, value in found.items()
    ]


def control_rows(items: Sequence[Item], material: Material) -> list[Row]:
    """Switch rates and selectivities of the raw control."""

    def figures(counts: Mapping[str, Array]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        for at in (WINDOW, ONSET):
            for arm in VECTORS:
                for kind in (HALLUCINATED, GROUNDED):
                    rate = ratio(counts[f"{arm} {at}/{kind}"], counts[kind])
                    found[f"switched before {kind}, %|{at}|{arm}"] = rate
                found[f"selectivity|{at}|{arm}"] = selectivity(counts, f"{arm} {at}")
            gap = found[f"selectivity|{at}|{RANK}"] - found[f"selectivity|{at}|{PROBABILITY}"]
            found[f"selectivity|{at}|{GAP}"] = np.asarray(gap)
        return found

    found = intervals(items, figures, resamples=material.resamples, seed=material.seed)
    rows: list[Row] = []
    for key, metric in found.items():
        quantity, at, arm = key.split("|")
        rows.append({"part": CONTROL, "quantity": quantity, "at": at, "arm": arm, **estimate(metric)})
    return rows


def end_rows(material: Material) -> list[Row]:
    """Both calibrated arms end to end; nothing where no model is at hand."""
    if material.rerun is None:
        return []
    runs = EndToEnd.of(material)
    base, arms = runs.base(), {RANK: runs.rank(), PROBABILITY: runs.probability()}
    name = material.rerun.runs.task.name
    rows: list[Row] = []

    def add(arm: str, quantity: str, value: Any) -> None:
        rows.append({"part": END, "quantity": quantity, "at": "", "arm": arm, **estimate(value)})

    for arm, run in {"base": base, **arms}.items():
        for figure in FIGURES:
            add(arm, figure, run.summary.metrics[figure])
        if arm != "base":
            changed = compare(
                name, base.items, run.items, before=base.summary.metrics, after=run.summary.metrics
            )
            for counted in COUNTED:
                add(arm, counted, changed.mentions[counted])
    gaps = difference(arms[PROBABILITY], arms[RANK], resamples=material.resamples, seed=material.seed)
    for figure, metric in gaps.items():
        add(GAP, figure, metric)
    return rows
