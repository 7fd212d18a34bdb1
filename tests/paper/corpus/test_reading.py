"""Visual states read in chunks and blocks: the same as at once, whatever their sizes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.method import sums
from reweigh.method.lens import Lens
from reweigh.paper.corpus.image import EVIDENCE
from reweigh.paper.corpus.reading import read_image_states


@pytest.mark.parametrize(("chunk", "at_once"), [(5, 1 << 22), (12, 45), (5, 45), (1, 1)])
def test_chunks_and_blocks_change_nothing(chunk, at_once, monkeypatch):
    torch.manual_seed(3)
    norm, head, states = nn.LayerNorm(8), nn.Linear(8, 20, bias=False), torch.randn(12, 8) * 3
    whole = read_image_states(Lens(norm, head, chunk=12), states, seed=1, number=4)
    monkeypatch.setattr(sums, "AT_ONCE", at_once)
    found = read_image_states(Lens(norm, head, chunk=chunk), states, seed=1, number=4)
    assert set(found.evidence) == set(EVIDENCE)
    for name in EVIDENCE:
        np.testing.assert_allclose(found.evidence[name], whole.evidence[name], rtol=1e-4, atol=1e-6)
    for one, other in ((found.original, whole.original), (found.equalized, whole.equalized)):
        np.testing.assert_allclose(one.scale, other.scale, rtol=1e-5)
        np.testing.assert_allclose(one.log_probability, other.log_probability, rtol=1e-4)
        assert np.array_equal(one.counts, other.counts)
