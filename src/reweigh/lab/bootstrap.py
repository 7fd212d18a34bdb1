"""The bootstrap: 95% percentile intervals of any figure, all with one seed.

Units (images, mostly) are drawn with replacement, each with all its items. ``intervals`` and ``paired`` read items of a
task; ``bootstrap_counts`` counts with keys of any kind; both compute figures from summed counts, all draws at once.
``bootstrap`` serves figures that need more than sums (medians, correlations), one draw at a time. Equal numbers of units
are drawn alike everywhere, so differences of two figures of one study are paired. Undefined draws are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate

if TYPE_CHECKING:
    from reweigh.lab.tasks.types import Item

K = TypeVar("K", bound=Hashable)
C = TypeVar("C", bound=Hashable)
Array: TypeAlias = NDArray[np.float64]
Times: TypeAlias = NDArray[np.int64]
"""How often each unit was drawn."""
Figures: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes figures from summed counts (one array entry per resample); NaN where a figure is undefined.

A count that no item has is zero, so an item needs only the counts that concern it."""

Compare: TypeAlias = Callable[[Mapping[str, Array], Mapping[str, Array]], Mapping[str, Array]]
"""Compares the figures of two runs."""

RESAMPLES = 2000
LEVEL = 0.95
SEED = 20260
UNDEFINED = "its denominator is zero"
_BLOCK = 1 << 22  # weights in memory at once


def ratio(numerator: Array, denominator: Array, *, scale: float = 100.0) -> Array:
    """Divide, in percent by default; NaN if the denominator is zero."""
    top, bottom = np.broadcast_arrays(np.asarray(numerator, float), np.asarray(denominator, float))
    result = np.full(bottom.shape, np.nan)
    np.divide(scale * top, bottom, out=result, where=bottom != 0)
    return result


def harmonic(first: Array, second: Array) -> Array:
    """Compute the harmonic mean; 0 if both are 0, NaN if one is undefined."""
    total = np.asarray(first + second, float)
    product = np.asarray(2 * first * second, float)
    result = np.where(np.isnan(total), np.nan, 0.0)
    np.divide(product, total, out=result, where=~np.isnan(total) & (total != 0))
    return result


def sum_counts(items: Sequence[Item]) -> dict[str, float]:
    """Add up the counts of items."""
    names, matrix = _by_image(items)
    return dict(zip(names, (float(total) for total in matrix.sum(axis=0)), strict=True))


def point(items: Sequence[Item], figures: Figures) -> dict[str, float | None]:
    """Compute the figures of items without intervals; None if undefined."""
    names, matrix = _by_image(items)
    return {name: _number(value) for name, value in figures(_named(names, matrix.sum(axis=0))).items()}


def intervals(
    items: Sequence[Item],
    figures: Figures,
    *,
    undefined: Callable[[str], str] = lambda name: UNDEFINED,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Compute figures of items; ``undefined`` says why one has no value."""
    if not items:
        return {name: Estimate(None, reason="there are no items") for name in figures(_Sums({}, ()))}
    names, matrix = _by_image(items)
    values, (draws,) = _values_and_draws([matrix], names, figures, resamples, seed)
    return {
        name: estimate(value, draws[name] if len(matrix) > 1 else (), undefined(name))
        for name, value in values[0].items()
    }


def paired(
    first: Sequence[Item],
    second: Sequence[Item],
    figures: Figures,
    compare: Compare,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Compare two runs on the same items, drawing the same images for both."""
    _check_paired(first, second)
    if not first:
        return {}
    names = sorted({name for item in (*first, *second) for name in item.counts})
    matrices = [_by_image(items, names)[1] for items in (first, second)]
    values, draws = _values_and_draws(matrices, names, figures, resamples, seed)
    drawn = compare(*draws)
    return {
        name: estimate(value, drawn[name] if len(matrices[0]) > 1 else (), UNDEFINED)
        for name, value in compare(*values).items()
    }


def paired_difference(
    first: Sequence[Item],
    second: Sequence[Item],
    figures: Figures,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Compute ``second - first`` for two runs on the same items, drawing the same images for both."""
    return paired(first, second, figures, differences, resamples=resamples, seed=seed)


def differences(old: Mapping[str, Array], new: Mapping[str, Array]) -> dict[str, Array]:
    """Subtract each figure of one run from the other's."""
    return {name: new[name] - old[name] for name in new}


def bootstrap(
    units: int,
    figures: Callable[[Times], Mapping[K, float]],
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[K, Estimate]:
    """Compute figures of some units (images, or tokens); ``figures`` is told how often each counts."""
    drawn = [figures(times) for block in _draws(units, resamples, seed) for times in block]
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
    images = [own for _, own in sorted(counts, key=lambda pair: str(pair[0]))]  # as items of a task
    names = list(dict.fromkeys(name for own in images for name in own))
    matrix = np.array([[own.get(name, 0.0) for name in names] for own in images], dtype=np.float64)
    (whole,), (drawn,) = _values_and_draws([matrix], names, figures, resamples, seed)
    return {name: estimate(value, drawn[name], UNDEFINED) for name, value in whole.items()}


def estimate(value: Any, draws: Any, reason: str | None = None) -> Estimate:
    """Return a value with the percentile interval of its draws; ``reason`` says why it may be undefined."""
    if reason is not None and np.isnan(value):
        return Estimate(None, reason=reason)
    found = np.asarray(draws, dtype=np.float64)
    defined = found[~np.isnan(found)]
    tail = (1 - LEVEL) / 2
    ends = np.quantile(defined, [tail, 1 - tail]).tolist() if len(defined) else ()
    return Estimate(float(value), *ends)


def medians(values: NDArray[Any], times: Times) -> Array:
    """Return the medians of the columns of ``values`` (units, n), each unit counted as often as it was drawn."""
    found: Array = np.median(np.repeat(values, times, axis=0), axis=0)
    return found


def _draws(units: int, resamples: int, seed: int) -> Iterator[Times]:
    """Yield blocks of multinomial weights, (resamples in the block, units); none for a single unit."""
    generator = np.random.default_rng(seed)
    step = max(1, _BLOCK // max(units, 1))
    for start in range(0, resamples if units > 1 else 0, step):
        size = min(step, resamples - start)
        yield generator.multinomial(units, np.full(units, 1.0 / units), size=size)


def _values_and_draws(
    matrices: Sequence[Array],
    names: Sequence[C],
    figures: Callable[[Mapping[C, Array]], Mapping[K, Array]],
    resamples: int,
    seed: int,
) -> tuple[list[Mapping[K, Array]], list[Mapping[K, Array]]]:
    """Compute the figures of each matrix of counts (images, names), and of the same draws of images from each."""
    values = [figures(_named(names, matrix.sum(axis=0))) for matrix in matrices]
    empty = [np.zeros((0, len(names)))]
    blocks: list[list[Array]] = [empty * len(matrices)]
    for weights in _draws(len(matrices[0]), resamples, seed):
        blocks.append([weights.astype(float) @ matrix for matrix in matrices])
    sums = [np.concatenate([block[index] for block in blocks]) for index in range(len(matrices))]
    return values, [figures(_named(names, total)) for total in sums]


def _check_paired(first: Sequence[Item], second: Sequence[Item]) -> None:
    left, right = ({(str(item.id), str(item.image)) for item in items} for items in (first, second))
    if left != right:
        odd = sorted(left ^ right)
        raise InputError(
            f"the two runs have different items: {len(odd)} are in one only, the first is id {odd[0][0]!r}",
            hint="compare runs of the same manifest, or restrict both to their common items",
        )


def _by_image(items: Sequence[Item], names: list[str] | None = None) -> tuple[list[str], Array]:
    """Sum the counts of each image; rows sorted by image so that the order of items does not matter."""
    if names is None:
        names = sorted({name for item in items for name in item.counts})
    column_of = {name: column for column, name in enumerate(names)}
    images = sorted({item.image for item in items}, key=str)
    row_of = {image: row for row, image in enumerate(images)}
    matrix = np.zeros((len(images), len(names)))
    for item in items:
        row = matrix[row_of[item.image]]
        for name, count in item.counts.items():
            row[column_of[name]] += count
    return names, matrix


class _Sums(dict[C, Array]):
    """Summed counts; a count that no item has is zero for every resample."""

    def __init__(self, sums: Mapping[C, Array], shape: tuple[int, ...]) -> None:
        super().__init__(sums)
        self._shape = shape

    def __missing__(self, name: C) -> Array:
        return np.zeros(self._shape)


def _named(names: Sequence[C], sums: NDArray[Any]) -> Mapping[C, Array]:
    columns = {name: np.asarray(sums[..., column], dtype=float) for column, name in enumerate(names)}
    return _Sums(columns, sums.shape[:-1])


def _number(value: Array) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
