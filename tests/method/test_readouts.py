"""Readouts against NumPy written from their definitions; summaries and rescaled logits likewise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reweigh.errors import MismatchError, NumericsError, UnknownNameError
from reweigh.method import sums as sums_module
from reweigh.method.readouts import READOUTS
from reweigh.method.sums import ReadoutSums

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
