"""The search for an operating point: grid, midpoint and choice by a fixed rule, and what is found, with intervals.

CHAIR_S, CHAIR_I, recall and F1 are judged together, and no point is chosen that loses more F1 than a bound. Knows no
model: the caller brings a function that answers and scores one point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from reweigh.benchmarks.bootstrap import Array, Figures, differences, paired
from reweigh.errors import InputError
from reweigh.estimate import Estimate
from reweigh.results.frame import AGAINST, Frame, Row
from reweigh.runs.task import Scored

if TYPE_CHECKING:
    from reweigh.experiments.tune.verdicts import Trust

FIGURES = ("chair_s", "chair_i", "recall", "f1")
LOWER = ("chair_s", "chair_i")
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
class Quality:
    """The figures of one run, in percent; ``None`` where one is undefined."""

    chair_s: float | None
    chair_i: float | None
    recall: float | None
    f1: float | None


@dataclass(frozen=True)
class Point:
    """A layer and a beta with their figures, the gain over the base, and whether they may be chosen."""

    layer: int
    beta: float
    quality: Quality
    gain: float | None
    eligible: bool

    @property
    def where(self) -> Where:
        """Its layer and beta."""
        return self.layer, self.beta

    def to_json(self) -> dict[str, Any]:
        """Return the point for a program."""
        judged = {"gain": self.gain, "eligible": self.eligible}
        return {"layer": self.layer, "beta": self.beta, **asdict(self.quality), **judged}


@dataclass(frozen=True)
class Found:
    """The whole search: the base, every point asked for, and the chosen one if there is one."""

    base: Quality
    points: tuple[Point, ...]
    chosen: Point | None


def edge(found: Found) -> str | None:
    """Return which end of the tried betas was chosen, if one was: a better one may lie beyond it."""
    if found.chosen is None:
        return None
    betas = sorted({point.beta for point in found.points})
    if found.chosen.beta == betas[-1]:
        return "largest"
    return "smallest" if found.chosen.beta == betas[0] else None


def gain(quality: Quality, base: Quality) -> float | None:
    """Return the mean of the four relative improvements over the base; a figure whose base is 0 counts in points."""
    now, before = asdict(quality), asdict(base)
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


def judge(layer: int, beta: float, quality: Quality, base: Quality, bound: float) -> Point:
    """Compare a point with the base; one with an undefined figure is never eligible."""
    return Point(layer, beta, quality, gain(quality, base), is_eligible(quality, base, bound))


def is_eligible(quality: Quality, base: Quality, bound: float) -> bool:
    """Whether all figures are defined and F1 loses no more than the bound."""
    return gain(quality, base) is not None and (quality.f1 or 0.0) >= (base.f1 or 0.0) - bound


def choose(points: Sequence[Point]) -> Point | None:
    """Return the eligible point of highest gain, if it gains; of equal ones the smaller beta, then the lower layer."""
    better = [point for point in points if point.eligible and point.gain is not None and point.gain > 0]
    return min(better, key=lambda point: (-(point.gain or 0.0), point.beta, point.layer), default=None)


def midpoint(points: Sequence[Point]) -> float | None:
    """Return the middle of the two adjacent eligible betas of one layer with the highest mean gain, if there are any."""
    ordered = sorted(points, key=lambda point: (point.layer, point.beta))
    pairs = [
        (-(one.gain + other.gain), one.beta, one.layer, other.beta)
        for one, other in pairwise(ordered)
        if one.layer == other.layer
        and one.eligible
        and other.eligible
        and one.gain is not None
        and other.gain is not None
    ]
    if not pairs:
        return None
    _, low, _, high = min(pairs)
    return round((low + high) / 2, 6)


def search(
    ask: Callable[[int, float], Quality],
    base: Quality,
    *,
    layers: Sequence[int],
    betas: Sequence[float] = BETAS,
    bound: float = BOUND,
) -> Found:
    """Ask for the grid, then for the midpoint at every layer, and choose."""
    require_figures(base)
    points = [judge(layer, beta, ask(layer, beta), base, bound) for layer in layers for beta in betas]
    middle = midpoint(points)
    if middle is not None and middle not in betas:
        points += [judge(layer, middle, ask(layer, middle), base, bound) for layer in layers]
    points.sort(key=lambda point: (point.layer, point.beta))
    return Found(base, tuple(points), choose(points))


def require_figures(base: Quality) -> None:
    """Refuse a base run that cannot be compared with."""
    if missing := [name for name in FIGURES if getattr(base, name) is None]:
        raise InputError(
            f"the base run has no {missing[0]}: its descriptions mention no objects, or the records have none",
            hint="tune on records with objects",
        )


def parse_numbers(text: str, kind: Callable[[str], Any], what: str) -> list[Any]:
    """Read different numbers from a comma-separated list, ascending."""
    try:
        found = sorted({kind(part.strip()) for part in text.split(",") if part.strip()})
    except ValueError as error:
        raise InputError(
            f"--{what} {text!r} is not a list of numbers", hint="separate them by commas"
        ) from error
    if not found:
        raise InputError(f"--{what} names no number", hint="separate them by commas")
    return found


GAIN = "gain"
"""The gain in percent among a point's differences to the base."""


@dataclass(frozen=True)
class Tuned:
    """A finished search.

    Attributes:
        found: The points and the choice.
        frame: Every figure of every point and of the base, and the differences to the base with the gain.
        trust: How far the verifier can be trusted whose answers stood for labels; ``None`` with labels.
    """

    found: Found
    frame: Frame
    trust: Trust | None = None

    def at(self, where: Where, figure: str, against: str | None = None) -> Estimate:
        """Return a figure of a point, or its difference to the base."""
        return self.frame.one(layer=where[0], beta=where[1], figure=figure, against=against)


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
