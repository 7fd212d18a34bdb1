"""95% percentile intervals of a study's figures: units are drawn with replacement, and each draw gives every figure.

``bootstrap`` serves figures of any kind (medians, correlations); ``bootstrap_counts`` those made of summed counts.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
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


def bootstrap(
    units: int,
    figures: Callable[[Times], Mapping[K, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Figures of all units with intervals; all figures share the draws, and undefined draws are left out.

    Args:
        units: How many units there are: images, or tokens.
        figures: Gets how often each unit counts.
        resamples: How many draws.
        seed: Seed of the draws.
    """
    generator, share = np.random.default_rng(seed), np.full(units, 1.0 / units)
    drawn = [figures(generator.multinomial(units, share)) for _ in range(resamples if units > 1 else 0)]
    tail = (1 - LEVEL) / 2
    found = {}
    for name, value in figures(np.ones(units, dtype=np.int64)).items():
        values = np.array([one[name] for one in drawn], dtype=np.float64)
        defined = values[~np.isnan(values)]
        ends = np.quantile(defined, [tail, 1 - tail]).tolist() if len(defined) else ()
        found[name] = Estimate(float(value), *ends)
    return found


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
