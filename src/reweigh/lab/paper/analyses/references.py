"""References out of sample: does a token's reference fit its evidence on images that it was not calibrated on?

b(v) comes from the calibration images; on disjoint images m(v) is the median of the token's occurrences. The error of a
reference r is |m(v) - r(v)| / b0 with r = b(v) (token-specific), b0 (global), or the b(v) permuted over the same tokens
(1,000 times). Tokens: registered, and observed on the disjoint images. Two aggregates: the median over tokens, and the mean
weighted by their occurrences there. reduction = 1 - token-specific / global; p = (1 + #{shuffles <= correct}) / 1001.
Intervals draw tokens: drawing images would inflate |m - r| and miss its own point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.bootstrap import Times, bootstrap
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.paper.material import Material
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
from reweigh.method.references import median

SHUFFLES = 1000
MEDIAN, MASS = "median over tokens", "mean weighted by occurrences"
SHORT = {MEDIAN: "token median", MASS: "weighted mean"}
SPECIFIC, GLOBAL, SHUFFLED = "token-specific", "global", "shuffled"
REDUCTION, CHANCE = "reduction", "p of the shuffles"
OVER_TOKENS, OVER_SHUFFLES = "95% over tokens", "range of the shuffles"
Floats = NDArray[np.float64]
Aggregate = Callable[[Floats, Floats], float]
"""Reduces the errors and weights of tokens to one number."""
AGGREGATES: dict[str, Aggregate] = {
    MEDIAN: lambda errors, weights: float(np.median(errors)),
    MASS: lambda errors, weights: float(np.average(errors, weights=weights)),
}


def disjoint_images(material: Material) -> str | None:
    """Require that no image, by content, is in both the calibration and the evaluation set."""
    both = (material.calibration, material.evaluation)
    first, second = ({image.key.rpartition("#")[2] for image in corpus} for corpus in both)
    shared = len(first & second)
    return f"{shared} images are in both the calibration and the evaluation set" if shared else None


def two_tokens(material: Material) -> str | None:
    """Require two registered tokens on the disjoint images."""
    return None if len(held_out(material)[0]) > 1 else "fewer than two registered tokens occur there"


def dot_name(one: Row) -> str:
    """Name a reference in the figure: the whiskers of shuffled ones are not an interval."""
    return f"{one['quantity']} (range)" if one["quantity"] == SHUFFLED else str(one["quantity"])


class References(Study):
    """Errors of token-specific, global and shuffled references on held-out images."""

    name = "references"
    title = "References out of sample"
    labels = ("fig:token-correspondence", "tab:token-reference-correspondence")
    keys = (
        ("quantity", "error of a kind of reference in units of b0, reduction against global, or p"),
        ("aggregate", "median over tokens, or mean weighted by held-out occurrences"),
        ("tokens", "registered tokens observed on held-out images"),
        ("interval", "what low and high are"),
    )
    needs = (enough_images, registered(), disjoint_images, two_tokens)
    panels = tuple(
        Dots(
            f"error, b0 ({name})",
            {"aggregate": aggregate, "quantity": (SPECIFIC, GLOBAL, SHUFFLED)},
            dot_name,
            level=0.0,
        )
        for aggregate, name in SHORT.items()
    )

    def compute(self, material: Material) -> Frame:
        middle, reference, mass = held_out(material)
        return errors(middle, reference, mass, material.table.b0, seed=material.runs.seed, **material.draws)

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        lines = []
        for aggregate in AGGREGATES:
            own, flat, mixed, chance = (
                frame.one(quantity=quantity, aggregate=aggregate)
                for quantity in (SPECIFIC, GLOBAL, SHUFFLED, CHANCE)
            )
            lines.append(
                f"Distance to a token's held-out median ({aggregate}): {own.text(digits=3, unit=' b0')} for its own "
                f"reference, {flat.text(digits=3)} for the global one, {mixed.value:.3f} for shuffled ones "
                f"(range {mixed.low:.3f} to {mixed.high:.3f}, p = {chance.value:.4f})."
            )
        claim = "token-specific references are closer to held-out evidence than a global one"
        reduction = percent(frame.one(quantity=REDUCTION, aggregate=MEDIAN))
        observed = {"held-out tokens": int(str(frame.rows[0]["tokens"]))}
        few = too_few_for(material, observed)
        said = finding(f"{claim} (reduction of the median error)", reduction, few=few, digits=1, unit="%")
        return [*lines, said]

    def entries(self, frame: Frame) -> Iterator[Filled]:
        for one in frame:
            name = SHORT[str(one["aggregate"])]
            if one["quantity"] == REDUCTION:
                yield Filled(name, "reduction %", percent(one.estimate))
            elif one["quantity"] != CHANCE:
                yield Filled(name, str(one["quantity"]), one.estimate)


def held_out(material: Material) -> tuple[Floats, Floats, Floats]:
    """Return the held-out median, reference and occurrences of each registered token that is observed there."""
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


def errors(
    middle: Floats, reference: Floats, mass: Floats, scale: float, *, resamples: int, seed: int
) -> Frame:
    """Compute the errors from held-out medians, references and occurrences of tokens."""
    own, flat = np.abs(middle - reference) / scale, np.abs(middle - scale) / scale
    generator = np.random.default_rng(seed)
    shuffled = [np.abs(middle - generator.permutation(reference)) / scale for _ in range(SHUFFLES)]
    rows: list[Row] = []
    for name, aggregate in AGGREGATES.items():

        def figures(times: Times, aggregate: Aggregate = aggregate) -> dict[str, float]:
            drawn = np.repeat(np.arange(len(own)), times)
            specific, plain = (aggregate(one[drawn], mass[drawn]) for one in (own, flat))
            reduction = 1 - specific / plain if plain else float("nan")
            return {SPECIFIC: specific, GLOBAL: plain, REDUCTION: reduction}

        found = bootstrap(len(own), figures, resamples=resamples)
        mixed = np.array([aggregate(one, mass) for one in shuffled])
        spread = Estimate(float(np.median(mixed)), float(mixed.min()), float(mixed.max()))
        chance = (1 + int((mixed <= found[SPECIFIC].number).sum())) / (SHUFFLES + 1)
        for quantity, value, interval in (
            *((kind, found[kind], OVER_TOKENS) for kind in (SPECIFIC, GLOBAL, REDUCTION)),
            (SHUFFLED, spread, OVER_SHUFFLES),
            (CHANCE, Estimate(chance), ""),
        ):
            rows.append(row(value, quantity=quantity, aggregate=name, tokens=len(own), interval=interval))
    return Frame(rows)
