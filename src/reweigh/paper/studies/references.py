"""References out of sample: does a token's reference fit the same token on images it was not calibrated on?

b(v) comes from the calibration images; on disjoint images m(v) is the median of the token's occurrences. The error of a
reference r is |m(v) - r(v)| / b0 with r = b(v) (token-specific), b0 (global), or the b(v) permuted over the same tokens
(1,000 times). Tokens: registered, and observed on the disjoint images. Two aggregates: the median over tokens, and the mean
weighted by their occurrences there. reduction = 1 - token-specific / global; p = (1 + #{shuffles <= correct}) / 1001.
Intervals draw tokens: drawing images would inflate |m - r| and miss its own point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reweigh.estimate import Estimate
from reweigh.method.references import median
from reweigh.paper.analyses.words import show
from reweigh.paper.corpus.store import StudyCorpus
from reweigh.paper.studies.bootstrap import Times, bootstrap
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

SHUFFLES = 1000
MEDIAN, MASS = "median over tokens", "mean weighted by occurrences"
SPECIFIC, GLOBAL, SHUFFLED, REDUCTION, CHANCE = (
    "token-specific",
    "global",
    "shuffled",
    "reduction",
    "p of the shuffles",
)
Floats = NDArray[np.float64]
Aggregate = Callable[[Floats, Floats], float]
"""From errors and weights of tokens to one number."""


def median_error(errors: Floats, weights: Floats) -> float:
    """The median over tokens, each once."""
    return float(np.median(errors))


def weighted_error(errors: Floats, weights: Floats) -> float:
    """The mean over tokens, weighted."""
    return float(np.average(errors, weights=weights))


AGGREGATES: dict[str, Aggregate] = {MEDIAN: median_error, MASS: weighted_error}


class References(Study):
    """Errors of token-specific, global and shuffled references on held-out images."""

    name = "references"
    title = "References out of sample"
    reproduces = "Fig. token-correspondence, Tab. token-reference-correspondence"
    columns = (
        Column(
            "quantity", "text", "error in units of b0 of a kind of reference, reduction against global, or p"
        ),
        Column("aggregate", "text", "median over tokens, or mean weighted by held-out occurrences"),
        Column("tokens", "integer", "registered tokens observed on held-out images"),
        Column("interval", "text", "what low and high are"),
        *ESTIMATE,
    )

    def unmet(self, material: Material) -> str | None:
        if reason := too_few_images(material):
            return reason
        if not len(material.table):
            return "no token is registered"
        if shared := shared_images(material.calibration, material.evaluation):
            return f"{shared} images are in both the calibration and the evaluation set"
        return None if len(held_out(material)[0]) > 1 else "fewer than two registered tokens occur there"

    def rows(self, material: Material) -> list[Row]:
        middle, reference, mass = held_out(material)
        options = {"resamples": material.resamples, "seed": material.seed}
        return table(middle, reference, mass, material.table.scale, **options)

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        lines = []
        for aggregate in AGGREGATES:
            own, flat, mixed, saved, chance = (
                find(rows, quantity=quantity, aggregate=aggregate)
                for quantity in (SPECIFIC, GLOBAL, SHUFFLED, REDUCTION, CHANCE)
            )
            lines.append(
                f"As {aggregate}, a token's own reference misses its held-out median by {show(own, digits=3)} b0, the "
                f"global one by {show(flat, digits=3)}, shuffled ones by {mixed['value']:.3f} (range {mixed['low']:.3f} to "
                f"{mixed['high']:.3f}): {100 * saved['value']:.1f}% less than global, p = {chance['value']:.4f}."
            )
        own = find(rows, quantity=REDUCTION, aggregate=MEDIAN)
        better = own["low"] is not None and own["low"] > 0
        lines.append(
            "Token-specific references carry over to other images, as the paper finds."
            if better
            else "That token-specific references are nearer than a global one, as the paper finds, does not show here."
        )
        return lines

    def draw(self, rows: Sequence[Row], path: Path) -> None:
        from reweigh.results.charts import chart, dots

        with chart(path, columns=2, height=2.4) as panels:
            for panel, aggregate in zip(panels, AGGREGATES, strict=True):
                shown = {
                    f"{name} (range)" if name == SHUFFLED else name: as_estimate(
                        find(rows, quantity=name, aggregate=aggregate)
                    )
                    for name in (SPECIFIC, GLOBAL, SHUFFLED)
                }
                dots(panel, {"error": shown}, label="out-of-sample error, b0")
                panel.set_xlim(left=0)
                panel.set_title(aggregate)


def held_out(material: Material) -> tuple[Floats, Floats, Floats]:
    """Held-out median, reference and occurrences of each registered token that is observed there."""
    seen = material.evaluation.observations()
    order = np.lexsort((seen.values[0], seen.token))
    token, value, count = seen.token[order], seen.values[0][order].astype(np.float64), seen.count[order]
    rows = []
    for v, b in zip(material.table.tokens, material.table.references, strict=True):
        part = slice(*np.searchsorted(token, [v, v + 1]))
        if part.start < part.stop:
            drawn = np.repeat(value[part], count[part])
            rows.append((median(drawn), float(b), float(len(drawn))))
    middle, reference, mass = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return middle, reference, mass


def shared_images(first: StudyCorpus, second: StudyCorpus) -> int:
    """How many images two sets share, by content."""
    contents = [{image.key.rpartition("#")[2] for image in corpus} for corpus in (first, second)]
    return len(contents[0] & contents[1])


def table(
    middle: Floats, reference: Floats, mass: Floats, scale: float, *, resamples: int, seed: int
) -> list[Row]:
    """The rows from held-out medians, references and occurrences of tokens."""
    own, flat = np.abs(middle - reference) / scale, np.abs(middle - scale) / scale
    generator = np.random.default_rng(seed)
    shuffled = [np.abs(middle - generator.permutation(reference)) / scale for _ in range(SHUFFLES)]
    rows: list[Row] = []
    for name, aggregate in AGGREGATES.items():

        def figures(times: Times, aggregate: Aggregate = aggregate) -> dict[str, float]:
            drawn = np.repeat(np.arange(len(own)), times)
            specific, plain = (aggregate(errors[drawn], mass[drawn]) for errors in (own, flat))
            return {
                SPECIFIC: specific,
                GLOBAL: plain,
                REDUCTION: 1 - specific / plain if plain else float("nan"),
            }

        found = bootstrap(len(own), figures, resamples=resamples, seed=seed)
        mixed = np.array([aggregate(errors, mass) for errors in shuffled])
        chance = (1 + int((mixed <= found[SPECIFIC].value).sum())) / (SHUFFLES + 1)
        about = {"aggregate": name, "tokens": len(own)}
        tokens = {"interval": "95% over tokens"}
        rows += [
            {"quantity": kind, **about, **tokens, **estimate(found[kind])}
            for kind in (SPECIFIC, GLOBAL, REDUCTION)
        ]
        spread = Estimate(float(np.median(mixed)), float(mixed.min()), float(mixed.max()))
        rows.append({"quantity": SHUFFLED, **about, "interval": "range of the shuffles", **estimate(spread)})
        rows.append({"quantity": CHANCE, **about, "interval": "", **estimate(chance)})
    return rows
