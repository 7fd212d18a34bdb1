"""Values pass between MLX and PyTorch exactly, and ranks are those of the definition, counted by MLX itself."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reweigh.engines.mlx.model import FLOATS, find_anatomy, to_mlx, to_torch
from reweigh.engines.reader import Reader
from reweigh.method.lens import Lens
from reweigh.method.sums import ReadoutSums

KINDS = sorted(FLOATS, key=str)


def counted(logits: mx.array) -> np.ndarray:
    """1 + the number of larger logits, position by position, in the type in which they are."""
    larger = mx.sum(logits[:, None, :] > logits[:, :, None], axis=-1)
    return 1.0 / (1.0 + np.array(larger).astype(np.float64))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 1.0, 40.0]))
def test_ranks_are_those_that_mlx_counts(kind, seed, scale):
    values = np.random.default_rng(seed).normal(size=(5, 37)).astype(np.float32) * scale
    logits = mx.array(np.where(values > scale, 0.0, values)).astype(kind)  # with ties
    expected = counted(logits).mean(0)
    for kernel in ("numpy", "auto"):
        sums = ReadoutSums(37, kernel=kernel)
        sums.add(to_torch(logits))
        np.testing.assert_allclose(sums.evidence("dmrr").numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(bits=st.lists(st.integers(0, 2**16 - 1), min_size=1, max_size=40))
def test_values_come_back_to_the_bit(kind, bits):
    own = torch.tensor(bits, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    own = own[own.isfinite()].to(FLOATS[kind])
    again = to_torch(to_mlx(own, kind))
    assert again.dtype == FLOATS[kind]
    assert torch.equal(again, own)


def test_the_evidence_of_a_model_is_that_of_its_logits(engines):
    anatomy = find_anatomy(*engines["llava"].mlx)
    lens = Lens(anatomy.norm, anatomy.head, chunk=7)
    states = torch.randn(16, lens.width, generator=torch.Generator().manual_seed(0))
    stream = anatomy.norm.run(mx.array(states.numpy()))
    logits = anatomy.language_model.lm_head(stream)
    found = Reader(lens, [0]).read(states).sums.evidence("dmrr")
    np.testing.assert_allclose(found.numpy(), counted(logits).mean(0), rtol=1e-3)
