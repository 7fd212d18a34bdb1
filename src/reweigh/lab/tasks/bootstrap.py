"""Image bootstrap over additive counts: intervals of a figure, and of the difference of two runs.

Images are drawn with replacement, each with all its items. A resample is a row of weights times the matrix of
counts, so a figure needs only sums. The counts are not interpreted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reweigh.errors import InputError
from reweigh.lab.estimate import Estimate
from reweigh.lab.tasks.types import UNDEFINED, Item, MetricInfo, find_metric

Array: TypeAlias = NDArray[np.float64]
Figures: TypeAlias = Callable[[Mapping[str, Array]], Mapping[str, Array]]
"""Computes figures from summed counts (one array entry per resample); NaN where a figure is undefined.

A count that no item has is zero, so an item needs only the counts that concern it."""

Compare: TypeAlias = Callable[[Mapping[str, Array], Mapping[str, Array]], Mapping[str, Array]]
"""Compares the figures of two runs."""

RESAMPLES = 2000
LEVEL = 0.95
SEED = 20260
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
    metrics: Sequence[MetricInfo] = (),
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Estimate]:
    """Compute figures with percentile intervals; ``metrics`` say why a figure can be undefined."""
    if not items:
        return {name: Estimate(None, reason="there are no items") for name in figures(_Sums({}, ()))}
    names, matrix = _by_image(items)
    values = {name: _number(value) for name, value in figures(_named(names, matrix.sum(axis=0))).items()}
    draws = _figures_of_draws([matrix], names, figures, resamples, seed)[0]
    return {
        name: _estimate(value, draws[name], len(matrix), find_metric(metrics, name).undefined)
        for name, value in values.items()
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
    (_, before), (_, after) = (_by_image(items, names) for items in (first, second))
    values = compare(*(figures(_named(names, matrix.sum(axis=0))) for matrix in (before, after)))
    draws = compare(*_figures_of_draws([before, after], names, figures, resamples, seed))
    return {name: _estimate(_number(value), draws[name], len(before)) for name, value in values.items()}


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


class _Sums(dict[str, Array]):
    """Summed counts; a count that no item has is zero for every resample."""

    def __init__(self, sums: Mapping[str, Array], shape: tuple[int, ...]) -> None:
        super().__init__(sums)
        self._shape = shape

    def __missing__(self, name: str) -> Array:
        return np.zeros(self._shape)


def _figures_of_draws(
    matrices: Sequence[Array], names: Sequence[str], figures: Figures, resamples: int, seed: int
) -> list[Mapping[str, Array]]:
    blocks = [
        [weights @ matrix for matrix in matrices] for weights in _weights(len(matrices[0]), resamples, seed)
    ]
    sums = [np.concatenate([block[index] for block in blocks]) for index in range(len(matrices))]
    return [figures(_named(names, total)) for total in sums]


def _weights(images: int, resamples: int, seed: int) -> Iterator[Array]:
    """Yield blocks of multinomial weights, (resamples in the block, images)."""
    generator = np.random.default_rng(seed)
    step = max(1, _BLOCK // images)
    for start in range(0, resamples, step):
        size = min(step, resamples - start)
        yield generator.multinomial(images, np.full(images, 1.0 / images), size=size).astype(float)


def _named(names: Sequence[str], sums: NDArray[Any]) -> Mapping[str, Array]:
    columns = {name: np.asarray(sums[..., column], dtype=float) for column, name in enumerate(names)}
    return _Sums(columns, sums.shape[:-1])


def _estimate(value: float | None, draws: Array, images: int, undefined: str = UNDEFINED) -> Estimate:
    if value is None:
        return Estimate(None, reason=undefined)
    defined = draws[~np.isnan(draws)]
    if images < 2 or not len(defined):
        return Estimate(value)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(defined, [tail, 1 - tail])
    return Estimate(value, float(low), float(high))


def _number(value: Array) -> float | None:
    number = float(value)
    return None if np.isnan(number) else number
