"""Controls of a choice without labels: what asks nobody, and corrected answers against plain counting."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.experiments.tune.labelfree.against import hold_against_labels
from reweigh.experiments.tune.labelfree.arrays import Arrays, quality_of
from reweigh.experiments.tune.labelfree.controls import (
    Control,
    consensus,
    fewest_mentions,
    largest_beta,
    rogan_gladen,
)
from reweigh.experiments.tune.search import BASE

KEYS = (BASE, (1, 1.0), (1, 2.0))


def random_search(seed: int, images: int = 6, objects: int = 5) -> Arrays:
    """Every object of every image is asked about; the last one is a known absent that nobody mentions."""
    draw = np.random.default_rng(seed)
    image = np.repeat(np.arange(images), objects)
    absent = np.tile(np.arange(objects) == objects - 1, images)
    said = draw.integers(0, 3, (len(KEYS), len(image))) * ~absent
    said[:, ::objects] += 1  # named by every point
    true = draw.random(len(image)) < 0.6
    gaps = np.where(true ^ (draw.random(len(image)) < 0.2), 1.0, -1.0)
    ones = np.ones((len(KEYS), images))
    found = Arrays(KEYS, image, said.astype(float), gaps, true & ~absent, absent, ~absent, {"captions": ones})
    counted = found.counted(found.true)
    return Arrays(KEYS, image, found.said, gaps, found.true, absent, ~absent, counted)


def test_signals_that_ask_nobody():
    search = random_search(0)
    once, chance = np.ones(search.images), np.zeros((3, len(search.image)))
    assert largest_beta(search, once, chance).tolist() == [0.0, 1.0, 2.0]
    assert fewest_mentions(search, once, chance).tolist() == [-row.sum() for row in search.said]
    times = once * 0
    times[2] = 3
    assert fewest_mentions(search, times, chance)[0] == -3 * search.said[0][search.image == 2].sum()


def test_a_consensus_counts_what_so_many_points_mention():
    search = random_search(1)
    once, chance = np.ones(search.images), np.zeros((3, len(search.image)))
    for share, least in ((0.5, 2), (1.0, 3)):
        agreed = np.array([sum(row > 0) >= least for row in search.said.T])
        expected = quality_of(search.counted(agreed), once)
        found = consensus(share)(search, once, chance)
        assert {name: one.tolist() for name, one in found.items()} == {
            name: one.tolist() for name, one in expected.items()
        }


@given(st.integers(0, 10**6))
@settings(max_examples=25)
def test_corrected_counts_equal_plain_ones(seed):
    """Against a twin that walks over the answers one by one."""
    search = random_search(seed)
    affirmed = search.gaps > 0
    times = np.random.default_rng(seed).integers(0, 3, search.images).astype(float)
    times[0] += 1
    found = rogan_gladen(search, affirmed, times)
    weight = [times[i] for i in search.image]
    rows = list(zip(weight, affirmed, search.absent, (search.said > 0).all(axis=0), strict=True))
    f = sum(w * yes for w, yes, gone, _ in rows if gone) / sum(w for w, _, gone, _ in rows if gone)
    h = sum(w * yes for w, yes, _, named in rows if named) / sum(w for w, _, _, named in rows if named)
    told = 1 - (1 - h) / 2 - f
    if told <= 0:
        assert found["chair_i"].tolist() == quality_of(search.counted(affirmed), times)["chair_i"].tolist()
        return

    def present(pairs):
        asked = sum(count for count, _ in pairs)
        yes = sum(count for count, answer in pairs if answer)
        return min(max((yes - f * asked) / told, 0), asked), asked

    pool = [
        (w, yes) for w, yes, any_ in zip(weight, affirmed, (search.said > 0).any(axis=0), strict=True) if any_
    ]
    reference, _ = present(pool)
    for place, said in enumerate(search.said):
        there, asked = present([(w * n, yes) for w, n, yes in zip(weight, said, affirmed, strict=True)])
        named, _ = present([(w, yes) for w, n, yes in zip(weight, said, affirmed, strict=True) if n])
        assert found["chair_i"][place] == pytest.approx(100 * (1 - there / asked))
        if reference:
            assert found["recall"][place] == pytest.approx(100 * min(named, reference) / reference)


@given(st.integers(0, 10**6))
@settings(max_examples=15)
def test_nothing_is_corrected_where_the_checks_see_no_error(seed):
    search = random_search(seed)
    affirmed = ~search.absent & (search.true | (search.said > 0).all(axis=0))
    times = np.ones(search.images)
    found, plain = rogan_gladen(search, affirmed, times), quality_of(search.counted(affirmed), times)
    for name, one in plain.items():
        assert found[name] == pytest.approx(one), name


def test_a_control_that_knows_the_truth_regrets_nothing():
    search = random_search(3, images=40)
    oracle = Control("truth", lambda search, times, chance: quality_of(search.counted(search.true), times))
    worst = Control("base", lambda search, times, chance: np.array([1.0, 0.0, 0.0]))
    held = hold_against_labels(search, draws=8, seed=0, worse=(), sizes=(), controls=(oracle, worst))
    knowing, idle = held.controls
    assert knowing.rho == pytest.approx(1)
    assert knowing.regret.value == pytest.approx(0)
    assert knowing.gain.value == pytest.approx(held.labels.value)
    assert idle.gain.value == pytest.approx(0)
    assert idle.regret.value == pytest.approx(held.labels.value)
