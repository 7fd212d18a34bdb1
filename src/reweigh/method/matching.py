"""The scale of a readout that has no natural unit: b0 at which its mean deployed edit equals that of DMRR.

The mean deployed edit is the mean of s = e(b(v), x) over the candidate occurrences of registered tokens. Registration is
evaluated under the same scale, so the mean jumps where a token joins or leaves: a log grid finds where it crosses the
target, and the crossing with the largest scale is refined down to neighboring floats. Pure NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import CalibrationError
from reweigh.method.references import (
    STABILITY,
    Floats,
    Match,
    References,
    Rule,
    median,
    range_index,
    stable,
    strength,
)

DECADES = 4
"""The grid spans so many decades on either side of the readout's own spread."""
PER_DECADE = 50
REFINED = 32
"""Points of each refinement of a crossing."""


def mean_edit(tokens: NDArray[Any], values: NDArray[Any], counts: NDArray[Any], found: References) -> float:
    """Return the mean of s over candidate occurrences of registered tokens; observations occurred ``counts`` times."""
    index = np.searchsorted(found.tokens, tokens)
    index[index == len(found.tokens)] = 0
    known = found.tokens[index] == tokens if len(found.tokens) else np.zeros(len(tokens), dtype=bool)
    if not known.any():
        return float("nan")
    s = strength(found.references[index[known]], np.asarray(values, dtype=np.float64)[known], found.scale)
    return float(np.average(s, weights=counts[known]))


class Profile:
    """The mean deployed edit of some observations as a function of the scale."""

    def __init__(
        self, tokens: NDArray[Any], values: NDArray[Any], counts: NDArray[Any], *, rule: Rule = stable
    ) -> None:
        owner = np.repeat(np.asarray(tokens, dtype=np.int64), counts)
        pooled = np.repeat(np.asarray(values, dtype=np.float64), counts)
        order = np.lexsort((pooled, owner))
        self.values, owner = pooled[order], owner[order]
        self.starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        groups = np.split(self.values, self.starts[1:])
        self.groups = groups
        self.sizes = np.array([len(group) for group in groups])
        self.rule = rule
        self.reference = self._spread_out([median(group) for group in groups])
        indices = [range_index(len(group)) for group in groups]
        self.ranged = np.array([k is not None for k in indices])
        pairs = list(zip(groups, indices, strict=True))
        self.low = self._spread_out([group[k - 1] if k else 0.0 for group, k in pairs])
        self.high = self._spread_out([group[len(group) - k] if k else 0.0 for group, k in pairs])

    def _spread_out(self, by_group: list[float]) -> Floats:
        return np.repeat(np.asarray(by_group, dtype=np.float64), self.sizes)

    def registered(self, scale: float) -> NDArray[np.bool_]:
        """Return which tokens the rule registers under a scale."""
        if self.rule is not stable:
            return np.array([self.rule(group, scale) for group in self.groups])
        moved = np.abs(strength(self.high, self.values, scale) - strength(self.low, self.values, scale))
        found: NDArray[np.bool_] = self.ranged & (
            np.add.reduceat(moved, self.starts) / self.sizes < STABILITY
        )
        return found

    def mean(self, scale: float) -> float:
        """Return the mean edit under a scale; NaN where no token is registered."""
        rows = np.repeat(self.registered(scale), self.sizes)
        if not rows.any():
            return float("nan")
        return float(strength(self.reference[rows], self.values[rows], scale).mean())

    def unit(self) -> float:
        """Return the readout's own spread: the mean distance of an observation from its token's reference."""
        return float(np.abs(self.values - self.reference).mean())


def match_scale(profile: Profile, target: float) -> Match:
    """Return the largest scale at which the mean edit crosses a target.

    Raises:
        CalibrationError: It crosses nowhere.
    """
    unit = profile.unit()
    if not (unit > 0 and np.isfinite(target)):
        raise CalibrationError(
            f"no scale can match a mean edit of {target:g}: the evidence of each token is always the same",
            hint="calibrate on more images, and check that they reach the model",
        )
    grid = unit * np.logspace(-DECADES, DECADES, 2 * DECADES * PER_DECADE + 1)
    bracket = _last_crossing(profile, grid, target)
    if bracket is None:
        means = [profile.mean(scale) for scale in grid]
        reached = f"{np.nanmin(means):.4g} to {np.nanmax(means):.4g}" if np.isfinite(means).any() else "none"
        raise CalibrationError(
            f"no scale from {grid[0]:.3g} to {grid[-1]:.3g} gives the mean edit {target:.4g} of DMRR "
            f"(it gives {reached})",
            hint="this readout cannot be matched on these images; calibrate on more of them, or use `prob` or `dmrr`",
        )
    while True:
        points = np.unique(np.linspace(*bracket, REFINED))
        inner = _last_crossing(profile, points, target)
        if inner is None or inner == bracket:
            break
        bracket = inner
    gaps = [abs(profile.mean(scale) - target) for scale in bracket]
    best = bracket[int(np.argmin(np.nan_to_num(gaps, nan=np.inf)))]
    return Match(float(best), target, profile.mean(best) - target)


def _last_crossing(profile: Profile, grid: Floats, target: float) -> tuple[float, float] | None:
    """Return the largest two neighbors of an ascending grid between which the mean crosses the target."""
    above = profile.mean(float(grid[-1])) - target
    for low, high in zip(grid[-2::-1], grid[:0:-1], strict=True):
        below = profile.mean(float(low)) - target
        if np.isfinite(below) and np.isfinite(above) and (below > 0) != (above > 0):
            return float(low), float(high)
        above = below
    return None
