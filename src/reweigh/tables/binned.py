"""Registration from counted bins: order statistics and De between bounds, and a decision only where both bounds agree.

Of observations in bins, x_(r) is known to lie in one bin. De (Eq. deltae) grows with the upper end of the order-statistic
range and falls with the lower one; over an observation x it is a trapezoid, so its extremes over a bin are at the bin's ends
and at the trapezoid's top. Hence De lies between two numbers, and registration is certain where both are on one side of
the rule's bound. Where bins hold single values, the exact rule itself decides. Pure NumPy on float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import CalibrationError, InputError
from reweigh.method.references import STABILITY, AtLeast, Floats, Rule, range_index, stable
from reweigh.method.strength import strength

REPEATED = 2**20
"""Up to so many observations that are known exactly, the exact rule decides."""

ROUNDING = 1e-9
"""More than the rounding of a mean of any number of strengths."""


@dataclass(frozen=True)
class Bracket:
    """A number that is known to lie between two others, and its estimate."""

    low: float
    value: float
    high: float

    @property
    def error(self) -> float:
        """The largest distance of the estimate from the number, as a share of the estimate."""
        return max(self.high - self.value, self.value - self.low) / self.value


@dataclass(frozen=True)
class Binned:
    """The observations of one token: how many lie between ``low`` and ``high`` of each bin, both included."""

    low: Floats
    high: Floats
    count: NDArray[np.int64]

    @cached_property
    def through(self) -> NDArray[np.int64]:
        """Observations up to and including each bin."""
        return np.cumsum(self.count)

    def __len__(self) -> int:
        return int(self.through[-1])

    @property
    def is_exact(self) -> bool:
        """Whether every bin holds a single value."""
        return bool((self.low == self.high).all())

    def order_statistic(self, rank: int) -> Bracket:
        """x_(rank), counted from 1; the estimate spreads a bin's observations evenly over it."""
        at = int(np.searchsorted(self.through, rank))
        low, high, count = float(self.low[at]), float(self.high[at]), int(self.count[at])
        share = (rank - (int(self.through[at]) - count) - 0.5) / count
        return Bracket(low, low + (high - low) * share, high)

    def median(self) -> Bracket:
        """The middle value, or the mean of the two middle ones."""
        n = len(self)
        if n % 2:
            return self.order_statistic(n // 2 + 1)
        one, other = self.order_statistic(n // 2), self.order_statistic(n // 2 + 1)
        return Bracket(
            *((getattr(one, name) + getattr(other, name)) / 2 for name in ("low", "value", "high"))
        )

    def rank_error(self) -> float:
        """How far from the median in ranks its estimate may be, as a share of all observations."""
        n = len(self)
        middle = [int(np.searchsorted(self.through, rank)) for rank in ((n + 1) // 2, n // 2 + 1)]
        if all(self.low[at] == self.high[at] for at in middle):
            return 0.0
        below = int(self.through[middle[0]]) - int(self.count[middle[0]])
        return max(n / 2 - below, int(self.through[middle[1]]) - n / 2) / n

    def variation(self, k: int, scale: Bracket) -> tuple[float, float]:
        """Bounds of De for a range that begins at x_(k), with a scale between bounds.

        Each strength moves by at most the relative width of the scale, and both of a difference to the same side.
        """
        start, end = self.order_statistic(k), self.order_statistic(len(self) + 1 - k)
        slack = (scale.high - scale.low) / scale.high + ROUNDING
        least = self._mean_move(start.high, max(end.low, start.high), scale.value, most=False)
        most = self._mean_move(start.low, end.high, scale.value, most=True)
        return max(least - slack, 0.0), most + slack

    def _mean_move(self, start: float, end: float, scale: float, *, most: bool) -> float:
        """Mean of e(end, x) - e(start, x), where each x is the one of its bin that moves most, or least."""

        def move(x: Floats) -> Floats:
            return strength(end, x, scale) - strength(start, x, scale)

        if most:  # nearest to the trapezoid's top, between end - scale and start
            left, right = sorted((end - scale, start))
            moved = move(np.clip(np.clip(self.low, left, right), self.low, self.high))
        else:
            moved = np.minimum(move(self.low), move(self.high))
        return float(np.average(moved, weights=self.count))


def decide(rule: Rule, seen: Binned, scale: Bracket) -> bool | None:
    """Whether a rule registers a token; ``None`` where the bins do not decide it."""
    if isinstance(rule, AtLeast):
        return len(seen) >= rule.count
    if rule is not stable:
        raise InputError(
            "this registration rule cannot be decided from sketches",
            hint="stable, or count-N such as count-5",
        )
    k = range_index(len(seen))
    if k is None:
        return False
    if seen.is_exact and scale.low == scale.high and len(seen) <= REPEATED:
        return stable(np.repeat(seen.low, seen.count), scale.value)
    least, most = seen.variation(k, scale)
    if most < STABILITY:
        return True
    return False if least >= STABILITY else None


def scale_of(pooled: Binned) -> Bracket:
    """b0 from all observations, refused where it may be zero."""
    scale = pooled.median()
    if not scale.low > 0:
        raise CalibrationError(
            f"the bins only tell that the pooled median b0 lies between {scale.low:g} and {scale.high:g}, but it must be "
            "positive to be a unit of evidence",
            hint="keep more bins",
        )
    return scale
