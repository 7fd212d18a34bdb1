"""95% percentile intervals of a study's figures: units are drawn with replacement, and each draw gives every figure.

``bootstrap`` serves figures of any kind (medians, correlations); ``bootstrap_counts`` those made of summed counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from reweigh.benchmarks.bootstrap import LEVEL, RESAMPLES, SEED, Array, intervals
from reweigh.benchmarks.types import Item
from reweigh.estimate import Estimate

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Hashable)
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
    figures: Callable[[Times], Mapping[K, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Figures of all units with intervals. ``figures`` gets how often each unit counts; all figures share the draws."""
    whole = figures(np.ones(units, dtype=np.int64))
    if units < 2:
        return {name: Estimate(float(value)) for name, value in whole.items()}
    drawn = [figures(times) for times in draws(units, resamples=resamples, seed=seed)]
    return {name: interval(value, np.array([one[name] for one in drawn])) for name, value in whole.items()}


def bootstrap_counts(
    counts: Iterable[tuple[int, Mapping[C, float]]],
    figures: Callable[[Mapping[C, Array]], Mapping[K, Array]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Figures of summed counts with intervals; ``counts`` are those of each image, beside its number."""
    items: Any = [Item(id=image, image=image, counts=own) for image, own in counts]  # type: ignore[arg-type]
    keyed: Any = figures  # counts and figures may have keys of any kind, not only names
    found: Any = intervals(items, keyed, resamples=resamples, seed=seed)
    return dict(found)


def medians(values: NDArray[Any], times: Times) -> NDArray[np.float64]:
    """Medians of the columns of ``values`` (units, n), each unit counted as often as it was drawn."""
    found: NDArray[np.float64] = np.median(np.repeat(values, times, axis=0), axis=0)
    return found
