from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.bootstrap import (
    Array,
    harmonic,
    intervals,
    paired_difference,
    point,
    ratio,
    sum_counts,
)
from reweigh.lab.tasks.base import Item


def rate(counts: Mapping[str, Array]) -> dict[str, Array]:
    return {"rate": ratio(counts["top"], counts["bottom"])}


def item(identity: int, top: float, bottom: float, image: int | None = None) -> Item:
    return Item(
        id=identity, image=identity if image is None else image, counts={"top": top, "bottom": bottom}
    )


def sample(size: int, seed: int = 0, images: int | None = None) -> list[Item]:
    random = np.random.default_rng(seed)
    rows = random.integers(1, 9, size)
    return [
        item(index, float(random.integers(0, n + 1)), float(n), None if images is None else index % images)
        for index, n in enumerate(rows)
    ]


def test_interval_is_that_of_images_drawn_one_by_one() -> None:
    scored = sample(60, images=20)
    metric = intervals(scored, rate, resamples=400, seed=5)["rate"]

    generator = np.random.default_rng(5)
    images = sorted({entry.image for entry in scored}, key=str)
    draws = []
    for _ in range(400):
        weights = generator.multinomial(len(images), np.full(len(images), 1 / len(images)))
        drawn = [image for image, weight in zip(images, weights, strict=True) for _ in range(weight)]
        top = bottom = 0.0
        for image in drawn:
            for entry in scored:
                if entry.image == image:
                    top += entry.counts["top"]
                    bottom += entry.counts["bottom"]
        draws.append(100 * top / bottom)
    low, high = np.quantile(draws, [0.025, 0.975])
    assert metric.low == pytest.approx(low)
    assert metric.high == pytest.approx(high)
    assert metric.low < metric.value < metric.high  # type: ignore[operator]


def test_images_not_items_are_the_unit() -> None:
    # Ten copies of each answer on one image say no more than one: the interval must not shrink.
    single = [item(index, index % 2, 1) for index in range(30)]
    copied = [item(100 * index + copy, index % 2, 1, index) for index in range(30) for copy in range(10)]
    assert intervals(copied, rate)["rate"] == intervals(single, rate)["rate"]


def test_same_seed_same_interval_other_seed_other_interval() -> None:
    scored = sample(40)
    assert intervals(scored, rate, seed=1) == intervals(scored, rate, seed=1)
    assert intervals(scored, rate, seed=1) != intervals(scored, rate, seed=2)


@given(st.permutations(range(12)))
def test_order_of_items_does_not_matter(order: list[int]) -> None:
    scored = sample(12, images=5)
    assert intervals([scored[index] for index in order], rate, resamples=50) == intervals(
        scored, rate, resamples=50
    )


def test_blocks_of_weights_are_one_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = sample(30)
    whole = intervals(scored, rate, resamples=100)
    monkeypatch.setattr("reweigh.lab.bootstrap._BLOCK", 7)
    assert intervals(scored, rate, resamples=100) == whole


def test_coverage_is_near_its_level() -> None:
    random = np.random.default_rng(3)
    hits = 0
    for trial in range(120):
        scored = [item(index, float(random.random() < 0.3), 1) for index in range(150)]
        metric = intervals(scored, rate, resamples=300, seed=trial)["rate"]
        hits += metric.low <= 30 <= metric.high  # type: ignore[operator]
    assert 0.88 <= hits / 120 <= 0.995


def test_undefined_is_none_with_a_reason() -> None:
    metric = intervals([item(1, 0, 0), item(2, 0, 0)], rate, undefined=lambda name: f"no {name}")["rate"]
    assert (metric.value, metric.low, metric.high, metric.reason) == (None, None, None, "no rate")
    assert "items" in intervals([], rate)["rate"].reason
    assert point([], lambda counts: {"rate": ratio(counts["top"], counts["bottom"])}) == {"rate": None}


def test_resamples_without_a_denominator_are_left_out() -> None:
    metric = intervals([item(1, 1, 2), item(2, 0, 0)], rate)["rate"]
    assert (metric.value, metric.low, metric.high) == (50, 50, 50)


def test_one_image_has_no_interval() -> None:
    metric = intervals([item(1, 1, 2, image=7), item(2, 0, 2, image=7)], rate)["rate"]
    assert (metric.value, metric.low, metric.high) == (25, None, None)


def test_counts_left_out_are_zero() -> None:
    scored = [Item(id=1, image=1, counts={"bottom": 2}), Item(id=2, image=2, counts={"top": 1, "bottom": 2})]
    assert sum_counts(scored) == {"top": 1, "bottom": 4}
    assert point(scored, rate) == {"rate": 25}
    assert point(scored[:1], rate) == {"rate": 0}


def test_paired_difference_draws_the_same_images_for_both() -> None:
    first = sample(80, seed=1)
    second = [
        Item(id=entry.id, image=entry.image, counts={**entry.counts, "top": entry.counts["top"] * 0.5})
        for entry in first
    ]
    metric = paired_difference(first, second, rate)["rate"]
    before, after = point(first, rate)["rate"], point(second, rate)["rate"]
    assert metric.value == pytest.approx(after - before)  # type: ignore[operator]
    alone = intervals(first, rate)["rate"]
    # Every resample of the second is half that of the first, so the difference is minus half of it.
    assert metric.low == pytest.approx(-alone.high / 2)  # type: ignore[operator]
    assert metric.high == pytest.approx(-alone.low / 2)  # type: ignore[operator]


def test_paired_difference_of_a_run_with_itself_is_zero() -> None:
    scored = sample(20)
    metric = paired_difference(scored, list(reversed(scored)), rate)["rate"]
    assert (metric.value, metric.low, metric.high) == (0, 0, 0)


def test_paired_difference_wants_the_same_items() -> None:
    with pytest.raises(InputError, match="'3'"):
        paired_difference(sample(4), sample(3), rate)


@given(st.floats(0, 100), st.floats(0, 100))
def test_harmonic_mean(first: float, second: float) -> None:
    result = float(harmonic(np.asarray(first), np.asarray(second)))
    if first + second == 0:
        assert result == 0
    else:
        assert result == pytest.approx(2 * first * second / (first + second))
    assert np.isnan(harmonic(np.asarray(np.nan), np.asarray(second)))
