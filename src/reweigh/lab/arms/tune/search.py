"""The search for an operating point: grid, midpoint and choice by a fixed rule, and what is found, with intervals.

CHAIR_S, CHAIR_I, recall and F1 are judged together, and no point is chosen that loses more F1 than a bound. Knows no
model: the caller brings a function that answers and scores points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import numpy as np

from reweigh.errors import InputError
from reweigh.lab.bootstrap import Array, Figures, differences, paired
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import AGAINST, Frame, Row
from reweigh.lab.runs.results import Scored

FIGURES = ("chair_s", "chair_i", "recall", "f1")
LOWER = ("chair_s", "chair_i")
GAIN = "gain"
"""The gain in percent among a point's differences to the base."""
Metrics = Mapping[str, Estimate]
Where = tuple[int | None, float]
"""A layer and a beta."""

BASE: Where = (None, 0.0)
"""The base model among the points."""

BETAS = (0.5, 0.7, 0.9, 1.1, 1.3)
BOUND = 0.5
RULE = (
    "eligible: F1 at least the base's minus the bound; gain: mean of the four relative improvements over the base "
    "(CHAIR_S and CHAIR_I lower, recall and F1 higher); midpoint of the adjacent eligible betas of one layer with "
    "the highest mean gain; chosen: the eligible point of highest gain, if it gains, the smaller beta of equal ones"
)


@dataclass(frozen=True)
class Point:
    """Options of a decoder with their figures, the gain over the base, and whether they may be chosen."""

    setting: Mapping[str, Any]
    metrics: Metrics
    gain: float | None
    eligible: bool

    @property
    def where(self) -> tuple[int, float]:
        """The layer and beta of a point of ReWEIGH."""
        return self.setting["layer"], self.setting["beta"]

    def to_json(self) -> dict[str, Any]:
        """Return the point as plain JSON."""
        judged = {"gain": self.gain, "eligible": self.eligible}
        return {**self.setting, **{name: self.metrics[name].value for name in FIGURES}, **judged}


def gain(metrics: Metrics, base: Metrics) -> float | None:
    """Return the mean of the four relative improvements over the base; a figure whose base is 0 counts in points."""
    now, before = ({name: one[name].value for name in FIGURES} for one in (metrics, base))
    if None in (*now.values(), *before.values()):
        return None
    return float(relative_gain(*({name: np.asarray(one[name]) for name in FIGURES} for one in (now, before))))


def relative_gain(now: Mapping[str, Array], base: Mapping[str, Array]) -> Array:
    """Return the gain of figures, of one run or of many draws."""
    parts = []
    for name in FIGURES:
        change = (now[name] - base[name]) / np.where(base[name] == 0, 1.0, base[name])
        parts.append(-change if name in LOWER else change)
    found: Array = np.mean(parts, axis=0)
    return found


def judge(setting: Mapping[str, Any], metrics: Metrics, base: Metrics, bound: float) -> Point:
    """Compare a point with the base; one with an undefined figure is never eligible."""
    gained = gain(metrics, base)
    eligible = gained is not None and metrics["f1"].number >= base["f1"].number - bound
    return Point(setting, metrics, gained, eligible)


def choose(points: Sequence[Point]) -> Point | None:
    """Return the eligible point of highest gain, if it gains; the first of equal ones."""
    better = [point for point in points if point.eligible and point.gain is not None and point.gain > 0]
    return max(better, key=lambda point: point.gain or 0.0, default=None)


def midpoint(points: Sequence[Point]) -> float | None:
    """Return the middle of the two adjacent eligible betas of one layer with the highest mean gain, if there are any."""
    ordered = sorted(points, key=lambda point: point.where)
    pairs = []
    for one, other in pairwise(ordered):
        (layer, low), (its_layer, high) = one.where, other.where
        if layer == its_layer and one.eligible and other.eligible:
            pairs.append((-((one.gain or 0.0) + (other.gain or 0.0)), low, layer, high))
    if not pairs:
        return None
    _, low, _, high = min(pairs)
    return round((low + high) / 2, 6)


Score = Callable[[Sequence[Where]], Mapping[Where, Scored]]
"""Answers all records at some points, and returns the scores of these and of all earlier ones."""


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes:
        base: The figures of the base model.
        points: Every point tried, by layer and beta.
        chosen: The chosen one, if there is one.
        frame: Every figure of every point and of the base, and the differences to the base with the gain.
    """

    base: Metrics
    points: tuple[Point, ...]
    chosen: Point | None
    frame: Frame

    def change(self, point: Point, figure: str) -> Estimate:
        """Return the difference of a point's figure to the base's."""
        layer, beta = point.where
        return self.frame.one(layer=layer, beta=beta, figure=figure, against="base")

    def edge(self) -> str | None:
        """Return which end of the tried betas is the best, alone or as good as others: a better one may lie beyond it."""
        if self.chosen is None:
            return None
        betas = sorted(point.where[1] for point in self.points)
        best = {point.where[1] for point in self.points if point.eligible and point.gain == self.chosen.gain}
        if betas[-1] in best:
            return "largest"
        return "smallest" if betas[0] in best else None


def search(
    score: Score,
    formula: Figures,
    benchmark: str,
    *,
    layers: Sequence[int],
    betas: Sequence[float] = BETAS,
    bound: float = BOUND,
) -> Tuned:
    """Score the base and the grid, then the midpoint at every layer, and choose; ``formula`` computes the figures."""
    scored = score([BASE, *product(layers, betas)])
    require_figures(scored[BASE].summary.metrics)
    points = _judged(scored, bound)
    middle = midpoint(points)
    if middle is not None and middle not in betas:
        scored = score([(layer, middle) for layer in layers])
        points = _judged(scored, bound)
    chosen = choose(sorted(points, key=lambda point: point.where[::-1]))
    frame = tuning_frame(scored, formula, benchmark)
    return Tuned(scored[BASE].summary.metrics, tuple(points), chosen, frame)


def _judged(scored: Mapping[Where, Scored], bound: float) -> list[Point]:
    base = scored[BASE].summary.metrics
    points = [
        judge({"layer": where[0], "beta": where[1]}, run.summary.metrics, base, bound)
        for where, run in scored.items()
        if where != BASE
    ]
    return sorted(points, key=lambda point: point.where)


def require_figures(base: Metrics) -> None:
    """Refuse a base run without one of the judged figures."""
    if missing := [name for name in FIGURES if base[name].value is None]:
        raise InputError(
            f"the base run has no {missing[0]}: its descriptions mention no objects, or the records have none",
            hint="tune on records with objects",
        )


def tuning_frame(scored: Mapping[Where, Scored], formula: Figures, benchmark: str) -> Frame:
    """Return all figures and, the same images drawn for both, the differences to the base."""
    rows: list[Row] = []

    def add(where: Where, found: Mapping[str, Estimate], against: str | None) -> None:
        keys = {"benchmark": benchmark, "layer": where[0], "beta": where[1]}
        rows.extend(Row({**keys, "figure": name, AGAINST: against}, one) for name, one in found.items())

    base = scored[BASE].items
    for where, run in scored.items():
        add(where, run.summary.metrics, None)
        if where != BASE:
            add(where, paired(base, run.items, formula, hold_against), "base")
    return Frame(rows)


def hold_against(old: Mapping[str, Array], new: Mapping[str, Array]) -> dict[str, Array]:
    """Return the differences of the judged figures, and the gain in percent."""
    found = {name: value for name, value in differences(old, new).items() if name in FIGURES}
    return {**found, GAIN: 100 * relative_gain(new, old)}
