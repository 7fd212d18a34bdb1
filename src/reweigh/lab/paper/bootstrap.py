"""95% percentile intervals of a study's figures: units are drawn with replacement, and each draw gives every figure.

``bootstrap`` serves figures of any kind (medians, correlations), one draw at a time; ``bootstrap_counts`` figures of summed
counts, all draws at once. Keys of counts and figures are typed tuples. Undefined draws are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from reweigh.lab.estimate import Estimate
from reweigh.lab.tasks.bootstrap import LEVEL, RESAMPLES, SEED, Array
from reweigh.lab.tasks.types import UNDEFINED

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Hashable)
Times = NDArray[np.int64]
"""How often each unit was drawn."""


def bootstrap(
    units: int,
    figures: Callable[[Times], Mapping[K, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Compute figures of some units (images, or tokens); ``figures`` is told how often each counts."""
    generator, share = np.random.default_rng(seed), np.full(units, 1.0 / units)
    drawn = [figures(generator.multinomial(units, share)) for _ in range(resamples if units > 1 else 0)]
    whole = figures(np.ones(units, dtype=np.int64))
    return {name: estimate(value, [one[name] for one in drawn]) for name, value in whole.items()}


def bootstrap_counts(
    counts: Sequence[tuple[int, Mapping[C, float]]],
    figures: Callable[[Mapping[C, Array]], Mapping[K, Array]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Compute figures of summed counts; ``counts`` are those of each image, beside its number.

    A count that an image does not carry is zero, and so is one that none carries.
    """
    images = [own for _, own in sorted(counts, key=lambda pair: str(pair[0]))]  # as items of a benchmark
    names = list(dict.fromkeys(name for own in images for name in own))
    matrix = np.array([[own.get(name, 0.0) for name in names] for own in images], dtype=np.float64)

    def of(sums: Array) -> Mapping[K, Array]:
        columns = zip(names, np.moveaxis(sums, -1, 0), strict=True)
        return figures(defaultdict(lambda: np.zeros(sums.shape[:-1]), columns))

    units = len(images)
    generator, share = np.random.default_rng(seed), np.full(units, 1.0 / units)
    drawn = of(generator.multinomial(units, share, size=resamples if units > 1 else 0) @ matrix)
    whole = {name: float(value) for name, value in of(matrix.sum(axis=0)).items()}
    return {name: estimate(value, drawn[name], UNDEFINED) for name, value in whole.items()}


def estimate(value: float, draws: Any, reason: str | None = None) -> Estimate:
    """Return a value with the percentile interval of its draws; ``reason`` says why it may be undefined."""
    if reason is not None and np.isnan(value):
        return Estimate(None, reason=reason)
    found = np.asarray(draws, dtype=np.float64)
    defined = found[~np.isnan(found)]
    tail = (1 - LEVEL) / 2
    ends = np.quantile(defined, [tail, 1 - tail]).tolist() if len(defined) else ()
    return Estimate(float(value), *ends)


def medians(values: NDArray[Any], times: Times) -> NDArray[np.float64]:
    """Return the medians of the columns of ``values`` (units, n), each unit counted as often as it was drawn."""
    found: NDArray[np.float64] = np.median(np.repeat(values, times, axis=0), axis=0)
    return found
