"""Confidence and evidence: what evidence the most confident mentions lack.

An onset is in the top quartile if its probability is at least the 75th percentile (linear interpolation) of all onsets. Of
these: the share that is hallucinated, and the median deficit max(b(v) - DMRR, 0) / b0 (not clipped above; onsets whose token
is registered) of hallucinated and of grounded ones. Quartile and medians are taken again in every resample of images.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.bootstrap import bootstrap
from reweigh.lab.frame import Frame
from reweigh.lab.paper.material import Material
from reweigh.lab.paper.study import (
    Dots,
    Filled,
    Study,
    both_kinds,
    enough_images,
    finding,
    registered,
    row,
    too_few_for,
)

QUARTILE = 0.75
SHARE, GAP = "hallucinated, %", "difference of medians"
HALLUCINATED, GROUNDED = "median deficit, hallucinated", "median deficit, grounded"


@dataclass(frozen=True)
class Onsets:
    """Mention onsets of all images.

    Attributes:
        image: (n,) index of the image.
        probability: (n,) of the emitted token.
        hallucinated: (n,) whether the mention is.
        deficit: (n,) in units of b0, at least 0; NaN where the token is not registered.
    """

    image: NDArray[np.int64]
    probability: NDArray[np.float64]
    hallucinated: NDArray[np.bool_]
    deficit: NDArray[np.float64]

    @classmethod
    def read(cls, material: Material) -> Onsets:
        """Read confidence, kind and deficit of every mention's onset."""
        references = material.table.over(material.evaluation.vocab_size)
        rows = []
        for number, image in enumerate(material.evaluation):
            for mention in image.mentions:
                token = image.tokens[mention.onset]
                lacking = max(references[token] - float(image.evidence["dmrr"][token]), 0.0)
                deficit = lacking / material.table.b0 if np.isfinite(references[token]) else np.nan
                rows.append((number, image.probability[mention.onset], mention.hallucinated, deficit))
        columns = zip(zip(*rows, strict=True), (np.int64, np.float64, np.bool_, np.float64), strict=True)
        return cls(*(np.array(values, dtype=kind) for values, kind in columns))

    def __len__(self) -> int:
        return len(self.image)

    def drawn(self, times: NDArray[Any]) -> Onsets:
        """Return the onsets of resampled images; ``times`` says how often each image was drawn."""
        rows = np.repeat(np.arange(len(self)), np.asarray(times, dtype=np.int64)[self.image])
        return Onsets(self.image[rows], self.probability[rows], self.hallucinated[rows], self.deficit[rows])


def samples(onsets: Onsets) -> dict[str, NDArray[Any]]:
    """Return what each figure is made of: kinds of the most confident onsets, and deficits of the registered ones."""
    probability, hallucinated = onsets.probability, onsets.hallucinated
    top = probability >= np.quantile(probability, QUARTILE) if len(onsets) else np.zeros(0, dtype=bool)
    known = top & ~np.isnan(onsets.deficit)
    return {
        SHARE: hallucinated[top],
        HALLUCINATED: onsets.deficit[known & hallucinated],
        GROUNDED: onsets.deficit[known & ~hallucinated],
    }


def deficits(onsets: Onsets) -> dict[str, float]:
    """Compute the share hallucinated, the median deficits of both kinds and their difference; NaN if undefined."""
    kinds, *deficit = samples(onsets).values()
    share = float(kinds.mean()) if len(kinds) else float("nan")
    bad, good = (float(np.median(values)) if len(values) else float("nan") for values in deficit)
    return {SHARE: 100.0 * share, HALLUCINATED: bad, GROUNDED: good, GAP: bad - good}


class Confidence(Study):
    """Hallucinated onsets among the most confident ones, and the evidence that both kinds lack."""

    name = "confidence"
    title = "Confidence and evidence"
    labels = ("tab:confidence-blindness",)
    keys = (
        ("quantity", "what is measured among the most confident quarter of onsets"),
        ("count", "onsets behind it"),
    )
    needs = (enough_images, both_kinds, registered())
    panels = (
        Dots("share of the most confident onsets, %", {"quantity": SHARE}, lambda one: "hallucinated"),
        Dots(
            "median deficit, units of b0",
            {"quantity": (HALLUCINATED, GROUNDED, GAP)},
            lambda one: str(one["quantity"]).removeprefix("median deficit, "),
            zero=True,
        ),
    )

    def compute(self, material: Material) -> Frame:
        onsets = Onsets.read(material)
        behind = {name: len(values) for name, values in samples(onsets).items()}
        behind[GAP] = behind[HALLUCINATED] + behind[GROUNDED]
        found = bootstrap(
            len(material.evaluation), lambda times: deficits(onsets.drawn(times)), **material.draws
        )
        return Frame(row(value, quantity=name, count=behind[name]) for name, value in found.items())

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        [share] = frame.pick(quantity=SHARE)
        hallucinated, grounded, gap = (frame.one(quantity=name) for name in (HALLUCINATED, GROUNDED, GAP))
        count = {str(one["quantity"]): int(str(one["count"])) for one in frame}
        sides = {
            "confident hallucinated onsets": count[HALLUCINATED],
            "confident grounded onsets": count[GROUNDED],
        }
        return [
            f"Among the most confident quarter of mention onsets ({share['count']}), "
            f"{share.estimate.text(digits=1, unit='%')} are hallucinated.",
            f"Among them, the median deficit of hallucinated onsets is {hallucinated.text(unit=' b0')}, that of grounded "
            f"ones {grounded.text(unit=' b0')}. "
            + finding(
                "confident hallucinations lack evidence that confident grounded mentions have",
                gap,
                few=too_few_for(material, sides),
                unit=" b0",
            ),
        ]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        metrics = {SHARE: "hallucinated %", GAP: "difference"}
        for one in frame:
            quantity = str(one["quantity"])
            yield Filled("top quartile", metrics.get(quantity, quantity), one.estimate)
