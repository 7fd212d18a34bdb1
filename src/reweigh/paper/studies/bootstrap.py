"""Percentile intervals of figures that are not ratios of sums: medians, correlations, shares of squares.

Units (images, or tokens) are drawn with replacement; a figure is computed of each draw. Figures of summed counts belong
to ``reweigh.benchmarks.bootstrap``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import LEVEL, RESAMPLES, SEED
from reweigh.estimate import Estimate

Times = NDArray[np.int64]
"""How often each unit was drawn."""


def draws(units: int, *, resamples: int = RESAMPLES, seed: int = SEED) -> Iterator[Times]:
    """Resamples of some units, each as how often every unit was drawn; the same for the same seed."""
    generator = np.random.default_rng(seed)
    share = np.full(units, 1.0 / units)
    for _ in range(resamples):
        yield generator.multinomial(units, share)


def interval(value: float, drawn: NDArray[Any], *, level: float = LEVEL) -> Estimate:
    """A value with the percentiles of its draws; undefined draws are left out."""
    defined = np.asarray(drawn, dtype=np.float64)
    defined = defined[~np.isnan(defined)]
    if not len(defined):
        return Estimate(float(value))
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Estimate(float(value), float(low), float(high))


def bootstrap(
    units: int,
    figures: Callable[[Times], Mapping[str, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Figures of all units, with intervals; ``figures`` receives how often each unit counts, all figures share the draws."""
    whole = figures(np.ones(units, dtype=np.int64))
    if units < 2:
        return {name: Estimate(value) for name, value in whole.items()}
    drawn = [figures(times) for times in draws(units, resamples=resamples, seed=seed)]
    return {name: interval(value, np.array([one[name] for one in drawn])) for name, value in whole.items()}


def medians(values: NDArray[Any], times: Times) -> NDArray[np.float64]:
    """Medians of the columns of ``values`` (units, n), each unit counted as often as it was drawn."""
    found: NDArray[np.float64] = np.median(np.repeat(values, times, axis=0), axis=0)
    return found
