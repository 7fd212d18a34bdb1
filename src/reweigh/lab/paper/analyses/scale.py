"""Scale across positions: how much the probability at one vocabulary rank differs between the positions of an image.

For each image, spread(k) = p90 - p10 over its positions of ln p_j at vocabulary rank k (linear interpolation); the frame
has the median over images, and e^spread as a ratio. Equalized logits z_j median_i(sigma_i) / sigma_j give the same spread
again; survival = equalized / original of those medians, in log units, and may exceed 1. For a fixed threshold,
N_j(tau) = #{v : p_j(v) >= tau}; the frame has the image median of p90 / p10 over positions, N = 0 counted as 1, with the
share of such positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.bootstrap import Times, bootstrap, medians
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.paper.corpus.reading import kept_ranks, threshold_names
from reweigh.lab.paper.material import Material
from reweigh.lab.paper.study import Filled, Study, percent, row
from reweigh.lab.views.charts import chart, lines, log_axis

Floats = NDArray[np.float64]
PLATEAU = 30
"""Up to this rank, all positions of the embedded model hold the filler words it was taught."""
SPREAD, RATIO, SURVIVAL = "spread", "ratio", "survival"
DEPTH, NONE = "depth ratio", "positions without any"
ORIGINAL, EQUALIZED = "original", "equalized"
LOGITS = (ORIGINAL, EQUALIZED)
NUISANCE, DEPTHS, THRESHOLDS = "fig:scale-nuisance", "tab:depth-dispersion", "tab:scale-dispersion"


class Quantity(NamedTuple):
    """What is measured, at which rank or threshold, of which logits."""

    quantity: str
    at: str
    logits: str = ""


def rank_spread(log_probability: Floats) -> Floats:
    """Compute p90 - p10 over positions of the log-probability at each rank: (P, K) -> (K,)."""
    low, high = np.quantile(log_probability, [0.1, 0.9], axis=0)
    found: Floats = high - low
    return found


def depth_ratio(counts: NDArray[Any]) -> Floats:
    """Compute p90 / p10 over positions of the number of tokens above each threshold, at least 1: (P, T) -> (T,)."""
    low, high = np.quantile(np.maximum(counts, 1).astype(np.float64), [0.1, 0.9], axis=0)
    found: Floats = high / low
    return found


class Scale(Study):
    """Spread of probability across positions, before and after equalization, and the rank depth of a threshold."""

    name = "scale"
    title = "Scale across positions"
    labels = (NUISANCE, DEPTHS, THRESHOLDS)
    keys = (
        ("quantity", "spread (ln), ratio (e^spread), survival, depth ratio, or positions without any"),
        ("at", "the vocabulary rank k, or the threshold tau"),
        ("logits", "original or equalized; empty for survival"),
    )

    def compute(self, material: Material) -> Frame:
        ranks = [str(rank) for rank in kept_ranks(material.evaluation.vocab_size)]
        names = threshold_names()
        spreads, depths, empty = ({logits: list[Floats]() for logits in LOGITS} for _ in range(3))
        for image in material.evaluation:
            for logits, summary in zip(LOGITS, (image.original, image.equalized), strict=True):
                spreads[logits].append(rank_spread(summary.log_probability))
                depths[logits].append(depth_ratio(summary.counts))
                empty[logits].append((summary.counts == 0).mean(axis=0))
        by_image = [{logits: np.array(one[logits]) for logits in LOGITS} for one in (spreads, depths, empty)]

        def figures(times: Times) -> Mapping[Quantity, float]:
            spread, depth = (
                {logits: medians(one[logits], times) for logits in LOGITS} for one in by_image[:2]
            )
            none = {logits: np.average(by_image[2][logits], axis=0, weights=times) for logits in LOGITS}
            found: dict[Quantity, float] = {}
            for i, rank in enumerate(ranks):
                before, after = (spread[logits][i] for logits in LOGITS)
                found[Quantity(SPREAD, rank, ORIGINAL)] = before
                found[Quantity(SPREAD, rank, EQUALIZED)] = after
                found[Quantity(SURVIVAL, rank)] = after / before if before else float("nan")
            for i, name in enumerate(names):
                for logits in LOGITS:
                    found[Quantity(DEPTH, name, logits)] = depth[logits][i]
                    found[Quantity(NONE, name, logits)] = none[logits][i]
            return found

        rows = []
        for figure, value in bootstrap(len(material.evaluation), figures, **material.draws).items():
            rows.append(row(value, **figure._asdict()))
            if figure.quantity == SPREAD:
                ratio = value.map(lambda part: float(np.exp(part)))
                rows.append(row(ratio, **figure._replace(quantity=RATIO)._asdict()))
        return Frame(rows)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        found = {int(str(one["at"])): one.estimate.value for one in frame.pick(quantity=SURVIVAL)}
        survival = {k: value for k, value in found.items() if value is not None}
        told = []
        shown = [k for k in survival if k in (10, 50)] or list(survival)[-1:]
        for k in shown:
            before, after = (frame.one(quantity=RATIO, at=str(k), logits=logits) for logits in LOGITS)
            told.append(
                f"At vocabulary rank {k}, the probabilities of a median image's positions differ by a factor of "
                f"{before.text()} (p90 / p10), and of {after.text()} once scales are equalized: "
                f"{100 * survival[k]:.0f}% of the spread in log units survives."
            )
        if beyond := [100 * value for k, value in survival.items() if k > PLATEAU]:
            told.append(
                f"At ranks of 50 and more, {min(beyond):.0f}% to {max(beyond):.0f}% survives (point estimates)."
            )
        if material.is_embedded:
            told.append(
                "In the embedded model, ranks up to 30 are a plateau of filler words learned in training: there, and at "
                "the absolute thresholds, the spread says nothing about images."
            )
        return told

    def draw(self, frame: Frame, path: Path) -> None:
        def points(quantity: str, logits: str) -> list[tuple[float, Estimate]]:
            return [
                (float(str(one["at"])), one.estimate) for one in frame.pick(quantity=quantity, logits=logits)
            ]

        across = "vocabulary rank"
        with chart(path, columns=2, height=3.0) as (left, right):
            spread = {logits: points(SPREAD, logits) for logits in LOGITS}
            lines(left, spread, across=across, up="p90 - p10 of ln p over positions")
            survival = [(at, percent(value)) for at, value in points(SURVIVAL, "")]
            level = ("all of it", 100.0)
            lines(right, {"survival": survival}, across=across, up="spread that survives, %", level=level)
            for panel in (left, right):
                log_axis(panel)
                panel.set_ylim(bottom=0)

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in frame:
            at, logits = str(one["at"]), str(one["logits"])
            if one["quantity"] == RATIO and at == "10":
                yield Filled(f"k = {at}", logits, one.estimate, NUISANCE)
            elif one["quantity"] == SPREAD:
                yield Filled(f"k = {at}", logits, one.estimate, DEPTHS)
            elif one["quantity"] == SURVIVAL:
                yield Filled(f"k = {at}", "survival %", percent(one.estimate), DEPTHS)
            elif one["quantity"] == DEPTH and logits == ORIGINAL:
                yield Filled(at, "p90/p10", one.estimate, THRESHOLDS)
