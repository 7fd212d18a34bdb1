"""The token component: a twin by plain loops, planted shares and correlations, and bootstrap intervals that cover."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from reweigh.lab.bootstrap import bootstrap, medians
from reweigh.lab.paper.analyses.tokens import (
    ANOVA,
    BETWEEN,
    SIMPLE,
    WITHIN,
    Sample,
    Squares,
    Tokens,
    decompose,
)
from reweigh.lab.paper.study import compute
from reweigh.tables.observations import ImageObservations, collect


def observations(seed, images=60, tokens=20, between=1.0, within=1.0, seen=0.6):
    """Evidence = token effect + noise, each token seen in some of the images, a few times."""
    random = np.random.default_rng(seed)
    effect = random.normal(5, between, tokens)
    parts = []
    for number in range(images):
        token = np.flatnonzero(random.random(tokens) < seen).astype(np.int64)
        values = (effect[token] + random.normal(0, within, len(token))) / 20
        values = np.clip(values, 1e-6, 1).astype(np.float32)
        parts.append(
            ImageObservations(f"{number:04d}", token, random.integers(1, 5, len(token)), values[None])
        )
    return collect([2], parts)


def twin(found, *, least, balanced):
    """Shares and correlations from their definitions."""
    groups: dict[int, list[float]] = {}
    images: dict[int, set[int]] = {}
    for image, token, count, value in zip(
        found.image, found.token, found.count, found.values[0].astype(np.float64), strict=True
    ):
        groups.setdefault(int(token), []).extend([value] * (1 if balanced else int(count)))
        images.setdefault(int(token), set()).add(int(image))
    kept = [np.array(values) for token, values in sorted(groups.items()) if len(images[token]) >= least]
    every = np.concatenate(kept)
    ssb = sum(len(one) * (one.mean() - every.mean()) ** 2 for one in kept)
    ssw = sum(((one - one.mean()) ** 2).sum() for one in kept)
    assert ssb + ssw == pytest.approx(((every - every.mean()) ** 2).sum())
    k, n = len(kept), len(every)
    msb, msw = ssb / (k - 1), ssw / (n - k)
    n0 = (n - sum(len(one) ** 2 for one in kept) / n) / (k - 1)
    var_b = np.var([one.mean() for one in kept], ddof=1)
    var_w = np.mean([np.var(one, ddof=1) for one in kept])
    return {
        BETWEEN: ssb / (ssb + ssw),
        WITHIN: ssw / (ssb + ssw),
        SIMPLE: var_b / (var_b + var_w),
        ANOVA: (msb - msw) / (msb + (n0 - 1) * msw),
    }


@pytest.mark.parametrize("least", [1, 2, 5, 10])
@pytest.mark.parametrize("balanced", [True, False])
def test_shares_and_correlations_are_those_of_the_twin(least, balanced):
    found = observations(least, images=25, seen=0.3)
    squares = Squares.of(Sample.of(found, least=least, balanced=balanced))
    expected = twin(found, least=least, balanced=balanced)
    mine = squares.shares() | squares.correlations()
    assert mine == pytest.approx(expected, rel=1e-9)
    assert mine[BETWEEN] + mine[WITHIN] == pytest.approx(1.0, abs=1e-15)


def test_a_planted_token_effect_gives_the_planted_share():
    found = observations(3, images=400, tokens=300, between=2.0, within=1.0, seen=0.2)
    mine = Squares.of(Sample.of(found, least=5))
    assert mine.shares()[BETWEEN] == pytest.approx(4 / 5, abs=0.03)
    assert mine.correlations()[ANOVA] == pytest.approx(4 / 5, abs=0.03)
    assert mine.correlations()[SIMPLE] == pytest.approx(4 / 5, abs=0.03)


def test_tokens_without_effect_have_no_component():
    found = observations(4, images=400, tokens=50, between=0.0)
    mine = Squares.of(Sample.of(found))
    assert mine.shares()[BETWEEN] < 0.02
    assert mine.correlations()[ANOVA] == pytest.approx(0, abs=0.01)


def test_drawn_images_count_as_often_as_they_were_drawn():
    found = observations(5, images=12, tokens=6)
    times = np.array([0, 2, 1, 3, 0, 1, 1, 1, 0, 2, 0, 1])
    sample = Sample.of(found)
    rows = np.repeat(np.arange(len(sample.token)), times[sample.image])
    again = Sample(sample.token[rows], sample.image[rows], sample.value[rows], sample.weight[rows])
    one, other = Squares.of(sample, times), Squares.of(again)
    assert one.shares() == pytest.approx(other.shares())
    assert one.correlations() == pytest.approx(other.correlations())


def test_the_table_repeats_by_seed_and_names_what_counts():
    found = observations(6)
    first, second = (decompose(found, resamples=50, seed=9) for _ in range(2))
    assert first == second
    assert first != decompose(found, resamples=50, seed=10)
    [primary] = first.pick(quantity=BETWEEN, weighting="image-balanced", least_images=5)
    low, high = primary.estimate.low, primary.estimate.high
    assert low < primary.estimate.value < high
    assert primary["tokens"] == 20
    assert primary["observations"] == len(found.token)
    assert first.pick(quantity=BETWEEN, weighting="occurrence-weighted").distinct("observations") == [
        len(found)
    ]


def test_intervals_cover_the_true_median_on_simulated_data():
    hits = 0
    for trial in range(200):
        values = np.random.default_rng(1000 + trial).normal(2.0, 1.0, (60, 1))
        found = bootstrap(
            60, lambda times, v=values: {"m": float(medians(v, times)[0])}, resamples=200, seed=trial
        )["m"]
        hits += found.low <= 2.0 <= found.high
    assert 0.88 <= hits / 200 <= 0.99


def test_the_study_tells_what_is_missing_and_draws(tmp_path):
    found = observations(7)
    made = SimpleNamespace(
        calibration=range(60),
        evaluation=range(60),
        observations=lambda: found,
        draws={"resamples": 40, "seed": 1},
    )
    outcome = compute(Tokens, made)
    assert outcome.unmet is None
    assert len(outcome.sentences) == 3
    Tokens().draw(outcome.frame, tmp_path / "figure")
    assert (tmp_path / "figure.svg").is_file()
    few = compute(Tokens, SimpleNamespace(calibration=range(9)))
    assert "9 calibration images" in few.unmet
