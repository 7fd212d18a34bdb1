"""Spread across positions: twins by plain loops, planted spreads, and what is told."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reweigh.lab.paper.analyses.scale import Scale, depth_ratio, rank_spread
from reweigh.lab.paper.corpus.reading import PositionSummary, kept_ranks, thresholds
from reweigh.lab.paper.study import compute

VOCAB = 60


def quantile(values, q):
    """Linear interpolation between order statistics, from its definition."""
    ordered = sorted(float(value) for value in values)
    place = q * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def test_the_spread_is_p90_minus_p10_over_positions():
    random = np.random.default_rng(1)
    values = random.normal(-5, 2, (17, 4))
    expected = [quantile(column, 0.9) - quantile(column, 0.1) for column in values.T]
    np.testing.assert_allclose(rank_spread(values), expected, rtol=1e-12)


def test_the_depth_ratio_counts_none_as_one():
    counts = np.array([[0, 4], [0, 8], [10, 8], [20, 16], [0, 2]], dtype=np.int32)
    filled = np.maximum(counts, 1)
    expected = [quantile(column, 0.9) / quantile(column, 0.1) for column in filled.T]
    np.testing.assert_allclose(depth_ratio(counts), expected)


def summary(spread, count):
    """Eleven positions whose log-probability rises evenly, so that p90 - p10 is eight tenths of the whole."""
    ranks, taus = len(kept_ranks(VOCAB)), len(thresholds(VOCAB))
    steps = np.linspace(0, spread / 0.8, 11)[:, None]
    return PositionSummary(
        np.ones(11), np.repeat(steps, ranks, axis=1), np.full((11, taus), count, dtype=np.int32)
    )


def made(images, embedded=False):
    class Corpus(list):
        vocab_size = VOCAB

    return SimpleNamespace(
        evaluation=Corpus(images),
        draws={"resamples": 200, "seed": 4},
        is_embedded=embedded,
        calibration=Corpus(),
    )


def planted(number):
    """Half of the images spread by 1, half by 3 (equalized: twice that); one position in all holds nothing."""
    spread = 1.0 if number % 2 else 3.0
    return SimpleNamespace(original=summary(spread, number % 2), equalized=summary(2 * spread, 5))


def test_planted_spreads_come_out_as_medians_and_survival_is_not_clipped():
    outcome = compute(Scale, made([planted(number) for number in range(40)]))
    assert outcome.unmet is None
    for k in kept_ranks(VOCAB):
        spread = outcome.frame.one(quantity="spread", at=str(k), logits="original")
        assert spread.value == pytest.approx(2.0)  # the median of as many ones as threes
        assert (spread.low, spread.high) == pytest.approx((1.0, 3.0))
        ratio = outcome.frame.one(quantity="ratio", at=str(k), logits="original")
        assert ratio.value == pytest.approx(np.exp(2.0))
        assert outcome.frame.one(quantity="survival", at=str(k)).value == pytest.approx(2.0)
    none = outcome.frame.one(quantity="positions without any", at="1e-03", logits="original")
    assert none.value == pytest.approx(0.5)
    assert outcome.frame.one(quantity="depth ratio", at="1/V", logits="original").value == 1.0
    assert any("200% of the spread" in sentence for sentence in outcome.sentences)
    assert not any("filler" in sentence for sentence in outcome.sentences)


def test_the_embedded_models_plateau_is_reported_and_few_images_are_refused(tmp_path):
    images = [planted(number) for number in range(30)]
    outcome = compute(Scale, made(images, embedded=True))
    assert any("plateau of filler words" in sentence for sentence in outcome.sentences)
    few = compute(Scale, made(images[:29]))
    assert not few.frame
    assert "29 images" in few.unmet
    Scale().draw(outcome.frame, tmp_path / "figure")
    assert (tmp_path / "figure.png").stat().st_size > 1000
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")
