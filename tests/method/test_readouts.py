"""Readouts against NumPy written from their definitions; summaries and rescaled logits likewise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import MismatchError, NumericsError, UnknownNameError
from reweigh.method import sums as sums_module
from reweigh.method.readouts import READOUTS
from reweigh.method.rescaling import (
    equalizing_factor,
    join,
    kept_ranks,
    ordinals,
    permuting_factor,
    rescaled,
    summarise,
    threshold_names,
    thresholds,
)
from reweigh.method.sums import Positions, ReadoutSums

pytestmark = pytest.mark.numerics


def softmax(row):
    weights = np.exp(row - row.max())
    return weights / weights.sum()


def twin(name, logits):
    """Evidence by plain loops over positions and tokens."""
    total = np.zeros(logits.shape[1])
    for row in logits.astype(np.float64):
        p = softmax(row)
        if name == "dmrr":
            total += [1 / (1 + sum(other > own for other in row)) for own in row]
        elif name in ("prob", "logprob"):
            total += p
        else:
            values = row if name == "zscore" else p
            deviation = np.sqrt(np.mean((values - values.mean()) ** 2))
            total += (values - values.mean()) / deviation if deviation else 0
    mean = total / len(logits)
    return np.log(np.maximum(mean, 1e-8)) if name == "logprob" else mean


def random_logits(seed, positions=7, vocab=23, spread=4.0):
    random = np.random.default_rng(seed)
    scale = random.uniform(0.3, spread, (positions, 1))
    return torch.from_numpy((random.normal(size=(positions, vocab)) * scale).astype(np.float32))


@pytest.mark.parametrize("name", READOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_readout_is_its_definition(name, dtype):
    logits = random_logits(1).to(dtype)
    sums = ReadoutSums(logits.shape[1], readouts=[name])
    sums.add(logits)
    found = sums.evidence(name)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), twin(name, logits.float().numpy()), rtol=2e-6, atol=1e-9)


def test_one_read_gives_all_and_chunks_merges_and_tokens_agree():
    logits, names = random_logits(2, positions=9), list(READOUTS)
    whole = ReadoutSums(logits.shape[1], readouts=names)
    whole.add(logits)
    first, second = (ReadoutSums(logits.shape[1], readouts=names) for _ in range(2))
    first.add(logits[:4])
    second.add(logits[4:])
    first.merge(second)
    tokens = torch.tensor([5, 0, 22])
    some = ReadoutSums(logits.shape[1], tokens, readouts=names)
    some.add(logits)
    for name in names:
        torch.testing.assert_close(first.evidence(name), whole.evidence(name), rtol=1e-6, atol=1e-12)
        torch.testing.assert_close(some.evidence(name), whole.evidence(name)[tokens], rtol=1e-6, atol=1e-12)
    assert torch.equal(first.evidence("dmrr"), whole.evidence("dmrr"))


def test_float64_copies_are_of_bounded_parts(monkeypatch):
    logits, names = random_logits(7, positions=9), list(READOUTS)
    whole, parts = ReadoutSums(logits.shape[1], readouts=names), ReadoutSums(logits.shape[1], readouts=names)
    whole.add(logits)
    monkeypatch.setattr(sums_module, "AT_ONCE", 2 * logits.shape[1] + 1)
    assert [len(part.logits) for part in sums_module.blocks(logits)] == [2, 2, 2, 2, 1]
    parts.add(logits)
    assert parts.count == whole.count == 9
    for name in names:
        torch.testing.assert_close(parts.evidence(name), whole.evidence(name), rtol=1e-6, atol=1e-12)


def test_a_position_without_spread_counts_as_zero():
    logits = torch.tensor([[2.0, 2.0, 2.0], [0.0, 1.0, 5.0]])
    sums = ReadoutSums(3, readouts=["zscore", "zprob"])
    sums.add(logits)
    for name in ("zscore", "zprob"):
        np.testing.assert_allclose(sums.evidence(name).numpy(), twin(name, logits.numpy()), rtol=1e-6)


def test_the_logarithm_has_a_floor():
    sums = ReadoutSums(2, readouts=["logprob"])
    sums.add(torch.tensor([[0.0, -80.0]]))
    assert sums.evidence("logprob")[1].item() == pytest.approx(np.log(1e-8))


def test_what_cannot_be_read_is_refused():
    with pytest.raises(UnknownNameError, match="readout"):
        ReadoutSums(3, readouts=["zscor"])
    sums = ReadoutSums(3, readouts=["prob"])
    with pytest.raises(NumericsError, match="position"):
        sums.evidence("prob")
    with pytest.raises(UnknownNameError):
        sums.evidence("dmrr")
    with pytest.raises(NumericsError, match="NaN"):
        sums.add(torch.tensor([[0.0, float("nan"), 1.0]]))
    with pytest.raises(MismatchError):
        sums.merge(ReadoutSums(3, readouts=["zscore"]))
    infinite = ReadoutSums(3, readouts=["zscore"])
    infinite.add(torch.tensor([[0.0, float("inf"), 1.0]]))
    with pytest.raises(NumericsError, match="finite"):
        infinite.evidence("zscore")


def test_summaries_are_their_definitions():
    logits = random_logits(3, positions=5, vocab=60)
    parts = [summarise(Positions(logits[:2])), summarise(Positions(logits[2:]))]
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
    scale = summarise(Positions(logits)).scale
    even = summarise(Positions(rescaled(logits, equalizing_factor(scale)))).scale
    np.testing.assert_allclose(even, np.median(scale), rtol=1e-12)
    drawn = np.random.default_rng([42, 7]).permutation(6)
    moved = summarise(Positions(rescaled(logits, permuting_factor(scale, 42, 7)))).scale
    np.testing.assert_allclose(moved, scale[drawn], rtol=1e-12)
    assert equalizing_factor(np.array([0.0, 2.0, 4.0])).tolist() == [1.0, 1.0, 0.5]
