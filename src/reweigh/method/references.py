"""The reference of a token, whether it is stable enough to act on, and the strength of the edit that follows from it.

Eqs. baseline, median-ci, deltae, normalized-edit and suppression-strength. Registration is pure NumPy on float64; a strength
is also computed on tensors. Knows nothing about models, files or tokens' names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import CalibrationError, InputError

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
Values = TypeVar("Values", "NDArray[np.float64]", "Tensor")

COVERAGE = 0.95
"""Nominal coverage of the order-statistic range."""

STABILITY = 0.5
"""A token is registered when moving its reference across the range changes the edit by less than this, on average."""

EXACT_UP_TO = 200
"""The binomial tail is exact up to this many observations, a continuity-corrected normal beyond."""


def strength(
    reference: Any, evidence: Values, scale: float, *, low: float | None = 0.0, high: float | None = 1.0
) -> Values:
    """Compute e(b, x) = clip((b - x) / b0, low, high) of tensors or NumPy arrays; an ablation drops a clip.

    The only implementation: registration uses it to measure how much an edit would vary, intervention to edit.

    Examples:
        >>> import numpy as np
        >>> strength(np.array([0.5, 0.5, 0.5]), np.array([0.75, 0.375, 0.125]), scale=0.25).tolist()
        [0.0, 0.5, 1.0]
    """
    share: Any = (reference - evidence) / scale
    return cast(Values, share.clip(low, high))


@functools.cache
def range_index(n: int) -> int | None:
    """Return the largest k with 1 - 2 Pr[Bin(n, 1/2) <= k - 1] >= 0.95 (Eq. median-ci), or ``None`` (n < 6).

    Examples:
        >>> [range_index(n) for n in (5, 6, 9, 100)]
        [None, 1, 2, 40]
    """
    n = int(n)  # 2**n of a NumPy integer overflows from 63 on
    if n > EXACT_UP_TO:
        bound = NormalDist().inv_cdf((1 - COVERAGE) / 2)
        return math.floor(n / 2 + 0.5 + bound * math.sqrt(n) / 2)
    tail, k = 0, 0
    # Integers avoid rounding: 1 - 2 tail / 2^n >= 0.95 is 40 tail <= 2^n.
    while 40 * (tail := tail + math.comb(n, k)) <= 2**n:
        k += 1
    return k or None


def edit_variation(ordered: Floats, k: int, scale: float) -> float:
    """Return De, the mean change of the edit when the reference moves across its range (Eq. deltae)."""
    low, high = ordered[k - 1], ordered[len(ordered) - k]
    return float(np.mean(np.abs(strength(high, ordered, scale) - strength(low, ordered, scale))))


Rule = Callable[[Floats, float], bool]
"""Decides from a token's ordered observations and the scale b0 whether it is registered."""


def stable(ordered: Floats, scale: float) -> bool:
    """Apply the paper's rule: the range exists and the edit varies by less than 0.5 across it."""
    k = range_index(len(ordered))
    return k is not None and edit_variation(ordered, k, scale) < STABILITY


@dataclass(frozen=True)
class AtLeast:
    """The ablation's rule: registered from ``count`` observations on."""

    count: int

    def __call__(self, ordered: Floats, scale: float) -> bool:
        return len(ordered) >= self.count


def least_count(rule: str) -> int:
    """Return the fewest observations of a token that a rule registers.

    Examples:
        >>> [least_count(name) for name in ("stable", "count-5")]
        [6, 5]
    """
    if rule == "stable":
        return next(n for n in range(1, 100) if range_index(n) is not None)
    number = rule.partition("count-")[2]
    return int(number) if number.isdigit() else 1


def rule_named(name: str) -> Rule:
    """Return a rule by its name in files and commands: ``stable``, or ``count-5`` for at least five observations."""
    if name == "stable":
        return stable
    kind, _, number = name.partition("-")
    if kind == "count" and number.isdigit() and int(number) > 0:
        return AtLeast(int(number))
    raise InputError(f"registration rule {name!r} is unknown", hint="stable, or count-N such as count-5")


@dataclass(frozen=True)
class Match:
    """A scale and how well its mean edit matches.

    Attributes:
        scale: The scale b0.
        target: The mean edit that was wanted.
        residual: Mean edit under the scale minus the target.
    """

    scale: float
    target: float
    residual: float


@dataclass(frozen=True)
class References:
    """b0 and the references of the registered tokens, ascending by token id.

    ``match`` is set where b0 was matched.
    """

    scale: float
    tokens: NDArray[np.int64]
    references: Floats
    counts: NDArray[np.int64]
    match: Match | None = None

    @classmethod
    def of(cls, scale: float, kept: Sequence[tuple[int, float, int]], **how: Any) -> References:
        """Make references of tokens, each with its b(v) and the number of its observations."""
        return cls(
            scale,
            np.array([token for token, _, _ in kept], dtype=np.int64),
            np.array([reference for _, reference, _ in kept], dtype=np.float64),
            np.array([count for _, _, count in kept], dtype=np.int64),
            **how,
        )


def median(values: Floats) -> float:
    """Return the middle value, or the mean of the two middle ones; ``values`` must be sorted."""
    middle = len(values) // 2
    return float(values[middle]) if len(values) % 2 else float((values[middle - 1] + values[middle]) / 2)


def nothing_observed() -> CalibrationError:
    """Return the error for images without observations."""
    return CalibrationError("there is no observation to register from", hint="calibrate on more images")


def register(
    tokens: NDArray[Any],
    values: NDArray[Any],
    counts: NDArray[Any] | None = None,
    *,
    rule: Rule = stable,
    match: Match | None = None,
) -> References:
    """Turn observations into references.

    Args:
        tokens: Token of each observation.
        values: Its evidence, DMRR_I(v) or that of another readout.
        counts: How often the same observation occurred (once, if not given); D_v is a multiset.
        rule: Which tokens to register.
        match: Holds b0, for a readout whose scale is matched; the pooled median if not given.
    """
    pooled = np.asarray(values, dtype=np.float64)
    owner = np.asarray(tokens, dtype=np.int64)
    if counts is not None:
        pooled, owner = np.repeat(pooled, counts), np.repeat(owner, counts)
    if not len(pooled):
        raise nothing_observed()
    if not np.isfinite(pooled).all():
        raise CalibrationError(
            "some evidence values are not finite", hint="the model returned NaN; check its dtype"
        )
    scale = median(np.sort(pooled)) if match is None else match.scale
    if not scale > 0:
        raise CalibrationError(
            f"the pooled median b0 is {scale}, but it must be positive to be a unit of evidence",
            hint="most candidates had no evidence at all: check the layer and that images reach the model",
        )
    order = np.lexsort((pooled, owner))
    pooled, owner = pooled[order], owner[order]
    starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
    kept: list[tuple[int, float, int]] = []
    for start, group in zip(starts, np.split(pooled, starts[1:]), strict=True):
        if rule(group, scale):
            kept.append((int(owner[start]), median(group), len(group)))
    return References.of(scale, kept, match=match)
