"""Visual states: chunks and blocks change nothing, summaries and scales are their definitions, ranks never move."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from reweigh.lab.paper.corpus.reading import (
    EVIDENCE,
    equalizing_factor,
    join,
    kept_ranks,
    ordinals,
    permuting_factor,
    read_image_states,
    rescaled,
    summarize,
    threshold_names,
    thresholds,
)
from reweigh.method import sums
from reweigh.method.lens import Lens
from reweigh.method.sums import Positions, ReadoutSums

pytestmark = pytest.mark.numerics


def softmax(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def random_logits(seed, positions=7, vocab=23, spread=4.0):
    random = np.random.default_rng(seed)
    scale = random.uniform(0.3, spread, (positions, 1))
    return torch.from_numpy((random.normal(size=(positions, vocab)) * scale).astype(np.float32))


@pytest.mark.parametrize(("chunk", "at_once"), [(5, 1 << 22), (12, 45), (5, 45), (1, 1)])
def test_chunks_and_blocks_change_nothing(chunk, at_once, monkeypatch):
    torch.manual_seed(3)
    norm, head, states = nn.LayerNorm(8), nn.Linear(8, 20, bias=False), torch.randn(12, 8) * 3
    whole = read_image_states(Lens(norm, head, chunk=12), states, seed=1, number=4)
    monkeypatch.setattr(sums, "AT_ONCE", at_once)
    found = read_image_states(Lens(norm, head, chunk=chunk), states, seed=1, number=4)
    assert set(found["evidence"]) == set(EVIDENCE)
    for name in EVIDENCE:
        np.testing.assert_allclose(found["evidence"][name], whole["evidence"][name], rtol=1e-4, atol=1e-6)
    for one, other in ((found[name], whole[name]) for name in ("original", "equalized")):
        np.testing.assert_allclose(one.scale, other.scale, rtol=1e-5)
        np.testing.assert_allclose(one.log_probability, other.log_probability, rtol=1e-4)
        assert np.array_equal(one.counts, other.counts)


def test_summaries_are_their_definitions():
    logits = random_logits(3, positions=5, vocab=60)
    parts = [summarize(Positions(logits[:2])), summarize(Positions(logits[2:]))]
    found = join(parts)
    assert kept_ranks(60) == (1, 2, 5, 10, 20, 50)
    assert len(thresholds(60)) == len(threshold_names()) == 7
    for row, values in enumerate(logits.double().numpy()):
        p = softmax(values)
        assert found.scale[row] == pytest.approx(values.std())
        ordered = np.log(np.sort(p)[::-1])
        np.testing.assert_allclose(found.log_probability[row], ordered[[0, 1, 4, 9, 19, 49]], rtol=1e-9)
        assert found.counts[row].tolist() == [int((p >= tau).sum()) for tau in thresholds(60)]


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.floats(1e-3, 1e3))
def test_a_positive_factor_keeps_every_rank_and_moves_probability(seed, factor):
    logits = random_logits(seed, positions=3, vocab=11)
    logits[:, 3] = logits[:, 5]  # a tie stays a tie
    moved = rescaled(logits, np.full(3, factor))
    before, after = ReadoutSums(11), ReadoutSums(11)
    before.add(logits)
    after.add(ordinals(moved))
    assert torch.equal(before.evidence(), after.evidence())


def test_float32_products_would_tie_where_float64_ones_do_not():
    near = 1.5 + torch.arange(8)[None] * 2.0**-23
    assert len(set((near * np.float32(1 / 1.4))[0].tolist())) < 8
    assert ordinals(rescaled(near, np.array([1 / 1.4]))).tolist() == [list(range(8))]


def test_factors_give_the_scales_they_promise():
    logits = random_logits(4, positions=6)
    scale = summarize(Positions(logits)).scale
    even = summarize(Positions(rescaled(logits, equalizing_factor(scale)))).scale
    np.testing.assert_allclose(even, np.median(scale), rtol=1e-12)
    drawn = np.random.default_rng([42, 7]).permutation(6)
    moved = summarize(Positions(rescaled(logits, permuting_factor(scale, 42, 7)))).scale
    np.testing.assert_allclose(moved, scale[drawn], rtol=1e-12)
    assert equalizing_factor(np.array([0.0, 2.0, 4.0])).tolist() == [1.0, 1.0, 0.5]
