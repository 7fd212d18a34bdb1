"""Confidence does not subsume the evidence: what the most confident mentions lack.

Onsets in the top quartile of the emitted token's probability: the share that is hallucinated, and the median deficit
max(b(v) - DMRR, 0) / b0 (not clipped above; onsets whose token is registered) of hallucinated and of grounded ones.
Quartile and medians are taken again in every resample of images.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from reweigh.paper.analyses.confidence import Onsets, deficits, top_quartile
from reweigh.paper.analyses.words import finding, show
from reweigh.paper.studies.bootstrap import bootstrap
from reweigh.paper.studies.detection import lacks_mentions
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

QUANTITIES = {
    "share": "hallucinated, %",
    "hallucinated": "median deficit, hallucinated",
    "grounded": "median deficit, grounded",
    "difference": "difference of medians",
}


class Confidence(Study):
    """Hallucinated onsets among the most confident ones, and what evidence both kinds lack."""

    name = "confidence"
    title = "Confidence does not subsume the evidence"
    reproduces = "Tab. confidence-blindness"
    columns = (
        Column("quantity", "text", "what is measured among the most confident quarter of onsets"),
        *ESTIMATE,
        Column("count", "integer", "onsets behind it"),
    )

    def unmet(self, material: Material) -> str | None:
        if (reason := too_few_images(material) or lacks_mentions(material)) is not None:
            return reason
        return None if len(material.table) else "no token is registered"

    def rows(self, material: Material) -> list[Row]:
        onsets = read_onsets(material)
        found = bootstrap(
            len(material.evaluation),
            lambda times: deficits(onsets.drawn(times)),
            resamples=material.resamples,
            seed=material.seed,
        )
        counts = _counts(onsets)
        return [
            {"quantity": title, **estimate(found[name]), "count": counts[name]}
            for name, title in QUANTITIES.items()
        ]

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        share, hallucinated, grounded, gap = (find(rows, quantity=title) for title in QUANTITIES.values())
        return [
            f"Among the most confident quarter of mention onsets {show(share, digits=1, unit='%')} are hallucinated "
            f"({share['count']} onsets).",
            f"Their median deficit is {show(hallucinated)} b0, that of grounded onsets {show(grounded)}. "
            + finding(
                "confident hallucinations lack evidence that confident grounded mentions have",
                gap,
                unit=" b0",
            ),
        ]

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        titles = list(QUANTITIES.values())
        with chart(path, columns=2, height=2.2) as (left, right):
            share = as_estimate(find(rows, quantity=titles[0]))
            dots(left, {"": {"hallucinated": share}}, label="share of the most confident onsets, %")
            medians = {
                title.rpartition(", ")[2]: as_estimate(find(rows, quantity=title)) for title in titles[1:]
            }
            dots(right, {"": medians}, zero=True, label="median deficit, units of b0")


def read_onsets(material: Material) -> Onsets:
    """Confidence, kind and deficit of every mention's onset."""
    references = material.table.over(material.evaluation.vocab_size)
    rows = []
    for number, image in enumerate(material.evaluation):
        for mention in image.mentions:
            token = image.tokens[mention.onset]
            lacking = max(references[token] - float(image.evidence["dmrr"][token]), 0.0)
            deficit = lacking / material.table.scale if np.isfinite(references[token]) else np.nan
            rows.append((number, image.probability[mention.onset], mention.hallucinated, deficit))
    image_, probability, hallucinated, deficit_ = zip(*rows, strict=True)
    return Onsets(
        np.array(image_, dtype=np.int64),
        np.array(probability, dtype=np.float64),
        np.array(hallucinated, dtype=bool),
        np.array(deficit_, dtype=np.float64),
    )


def _counts(onsets: Onsets) -> dict[str, int]:
    top = top_quartile(onsets)
    known = top & ~np.isnan(onsets.deficit)
    hallucinated = int((known & onsets.hallucinated).sum())
    grounded = int((known & ~onsets.hallucinated).sum())
    return {
        "share": int(top.sum()),
        "hallucinated": hallucinated,
        "grounded": grounded,
        "difference": hallucinated + grounded,
    }
