"""Scale across positions: how much probability at one vocabulary rank differs between the positions of an image.

For each image, spread(k) = p90 - p10 over its positions of ln p_j at vocabulary rank k (linear interpolation); the table
gives the median over images, and e^spread as a ratio. Equalized logits z_j median_i(sigma_i) / sigma_j give the same spread
again; survival = equalized / original of those medians, in log units, and may exceed 1. For a fixed threshold,
N_j(tau) = #{v : p_j(v) >= tau}; the table gives the image median of p90 / p10 over positions, N = 0 counted as 1, with the
share of such positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.estimate import Estimate
from reweigh.method.rescaling import PositionSummary, kept_ranks, threshold_names
from reweigh.paper.studies.bootstrap import Times, bootstrap, medians
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.study import ESTIMATE, Column, Row, Study, as_estimate, estimate

Floats = NDArray[np.float64]
PLATEAU = 30
"""Ranks up to which the embedded model's positions all hold the filler words it was taught."""
SPREAD, RATIO, SURVIVAL = "spread", "ratio", "survival"
DEPTH, NONE = "depth ratio", "positions without any"
ORIGINAL, EQUALIZED = "original", "equalized"


def rank_spread(log_probability: Floats) -> Floats:
    """p90 - p10 over positions of the log-probability at each rank: (P, K) -> (K,)."""
    low, high = np.quantile(log_probability, [0.1, 0.9], axis=0)
    found: Floats = high - low
    return found


def depth_ratio(counts: NDArray[Any]) -> Floats:
    """p90 / p10 over positions of the number of tokens above each threshold, none counted as one: (P, T) -> (T,)."""
    low, high = np.quantile(np.maximum(counts, 1).astype(np.float64), [0.1, 0.9], axis=0)
    found: Floats = high / low
    return found


class Scale(Study):
    """Spread of probability across positions, before and after equalization, and the rank depth of a threshold."""

    name = "scale"
    title = "Scale across positions"
    reproduces = "Fig. scale-nuisance, Tab. depth-dispersion, Tab. scale-dispersion"
    columns = (
        Column(
            "quantity",
            "text",
            "spread (ln), ratio (e^spread), survival, depth ratio, or positions without any",
        ),
        Column("at", "text", "the vocabulary rank k, or the threshold tau"),
        Column("logits", "text", "original or equalized; empty for survival"),
        *ESTIMATE,
    )

    def rows(self, material: Material) -> list[Row]:
        ranks, names = kept_ranks(material.evaluation.vocab_size), threshold_names()
        spreads: dict[str, list[Floats]] = {ORIGINAL: [], EQUALIZED: []}
        depths: dict[str, list[Floats]] = {ORIGINAL: [], EQUALIZED: []}
        empty: dict[str, list[Floats]] = {ORIGINAL: [], EQUALIZED: []}
        for image in material.evaluation:
            summaries: dict[str, PositionSummary] = {ORIGINAL: image.original, EQUALIZED: image.equalized}
            for logits, summary in summaries.items():
                spreads[logits].append(rank_spread(summary.log_probability))
                depths[logits].append(depth_ratio(summary.counts))
                empty[logits].append((summary.counts == 0).mean(axis=0))
        return table(
            _stacked(spreads),
            _stacked(depths),
            _stacked(empty),
            ranks,
            names,
            resamples=material.resamples,
            seed=material.seed,
        )

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        deep = max(int(row["at"]) for row in rows if row["quantity"] == SURVIVAL)
        shown = [k for k in (10, 50) if any(row["at"] == str(k) for row in rows)] or [deep]
        lines = []
        for k in shown:
            before, after, left = (
                next(r for r in rows if r["quantity"] == q and r["at"] == str(k) and r["logits"] == logits)
                for q, logits in ((RATIO, ORIGINAL), (RATIO, EQUALIZED), (SURVIVAL, ""))
            )
            lines.append(
                f"At vocabulary rank {k} the probability differs between the positions of the median image by a factor of "
                f"{before['value']:.2f} [{before['low']:.2f}, {before['high']:.2f}], and by {after['value']:.2f} once "
                f"scales are equalized: {100 * left['value']:.0f}% of the spread in log units survives."
            )
        beyond = [row for row in rows if row["quantity"] == SURVIVAL and int(row["at"]) > PLATEAU]
        if beyond:
            low, high = (f(100 * row["value"] for row in beyond) for f in (min, max))
            lines.append(f"At ranks of 50 and more between {low:.0f}% and {high:.0f}% survives.")
        if material.is_embedded:
            lines.append(
                "Ranks up to 30 of the embedded model are a plateau of filler words taught in training: there, and at the "
                "absolute thresholds, the spread says nothing about images."
            )
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, lines

        with chart(path, columns=2, height=3.0) as (left, right):
            spread = {
                logits: [
                    (float(row["at"]), as_estimate(row))
                    for row in rows
                    if row["quantity"] == SPREAD and row["logits"] == logits
                ]
                for logits in (ORIGINAL, EQUALIZED)
            }
            lines(left, spread, across="vocabulary rank", up="p90 - p10 of ln p over positions")
            left.set_xscale("log")
            left.set_ylim(bottom=0)
            survival = [
                (float(row["at"]), _percent(as_estimate(row))) for row in rows if row["quantity"] == SURVIVAL
            ]
            lines(right, {"survival": survival}, across="vocabulary rank", up="spread that survives, %",
                  level=("all of it", 100.0))  # fmt: skip
            right.set_xscale("log")
            right.set_ylim(bottom=0)


def table(
    spreads: dict[str, Floats],
    depths: dict[str, Floats],
    empty: dict[str, Floats],
    ranks: Sequence[int],
    names: Sequence[str],
    *,
    resamples: int,
    seed: int,
) -> list[Row]:
    """The rows from what each image gives: spreads (images, K), depth ratios and shares (images, T)."""

    def figures(times: Times) -> dict[str, float]:
        found: dict[str, float] = {}
        for logits in (ORIGINAL, EQUALIZED):
            middle, deep = medians(spreads[logits], times), medians(depths[logits], times)
            none = np.average(empty[logits], axis=0, weights=times)
            found |= {f"{SPREAD} {rank} {logits}": middle[index] for index, rank in enumerate(ranks)}
            for index, name in enumerate(names):
                found |= {f"{DEPTH} {name} {logits}": deep[index], f"{NONE} {name} {logits}": none[index]}
        for rank in ranks:
            before, after = (found[f"{SPREAD} {rank} {logits}"] for logits in (ORIGINAL, EQUALIZED))
            found[f"{SURVIVAL} {rank}"] = after / before if before else float("nan")
        return found

    found = bootstrap(len(spreads[ORIGINAL]), figures, resamples=resamples, seed=seed)
    rows: list[Row] = []
    for rank in ranks:
        for logits in (ORIGINAL, EQUALIZED):
            spread = found[f"{SPREAD} {rank} {logits}"]
            about = {"at": rank, "logits": logits}
            rows.append({"quantity": SPREAD, **about, **estimate(spread)})
            rows.append({"quantity": RATIO, **about, **estimate(spread.map(np.exp))})
        rows.append({"quantity": SURVIVAL, "at": rank, "logits": "", **estimate(found[f"{SURVIVAL} {rank}"])})
    for name in names:
        for logits in (ORIGINAL, EQUALIZED):
            for quantity in (DEPTH, NONE):
                value = estimate(found[f"{quantity} {name} {logits}"])
                rows.append({"quantity": quantity, "at": name, "logits": logits, **value})
    return rows


def _stacked(by_image: dict[str, list[Floats]]) -> dict[str, Floats]:
    return {logits: np.array(values) for logits, values in by_image.items()}


def _percent(value: Estimate) -> Estimate:
    return value.map(lambda part: 100 * part)
