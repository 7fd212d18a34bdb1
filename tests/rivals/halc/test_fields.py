"""The formulas of HALC equal their definitions: fields of view, contrasts of pairs, and who survives a ranking."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.rivals.halc.walk import CENTER, contrasts, divergences, fields, survivors


def test_fields_shrink_and_grow_about_the_center_and_stop_at_the_edges():
    found = fields(CENTER)
    wanted = [(0.38, 0.38, 0.62, 0.62), CENTER, (0.02, 0.02, 0.98, 0.98), (0.0, 0.0, 1.0, 1.0)]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    corner = fields((0.0, 0.5, 0.2, 1.0), growth=1.0)
    # each grows from the one before as it was cut off, and none shrinks by more than 0.8
    wanted = [(0.08, 0.7, 0.12, 0.8), (0.0, 0.5, 0.2, 1.0), (0.0, 0.25, 0.3, 1.0), (0.0, 0.0, 0.45, 1.0)]
    np.testing.assert_allclose(corner, wanted, atol=1e-12)
    with pytest.raises(InputError, match="box"):
        fields((0.5, 0.5, 0.5, 0.9))


def divergence_twin(one, other):
    p, q = (np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in (one, other))
    middle = (p + q) / 2
    return 0.5 * sum(
        m * (2 * np.log(m) - np.log(a) - np.log(b)) for m, a, b in zip(middle, p, q, strict=True)
    )


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_contrasts_are_the_written_out_ones(seed, pairs):
    logits = np.random.default_rng(seed).normal(size=(4, 9)) * 3
    apart = {(i, j): divergence_twin(logits[i], logits[j]) for i, j in itertools.combinations(range(4), 2)}
    found = divergences(torch.tensor(logits))
    for (i, j), value in apart.items():
        assert float(found[i, j]) == pytest.approx(value, abs=1e-5)
    best = sorted(apart, key=lambda pair: -apart[pair])[:pairs]
    wanted = [row for i, j in best for row in (logits[j] - 0.05 * logits[i], logits[i] - 0.05 * logits[j])]
    np.testing.assert_allclose(contrasts(torch.tensor(logits), pairs).numpy(), wanted, atol=1e-5)


def test_what_is_below_the_floor_stays_there_for_later_pairs():
    logits = torch.tensor([[0.0, 1.0, -2000.0], [4.0, 0.0, 5.0]])
    first, second = contrasts(logits, 1)
    assert first.tolist() == pytest.approx([4.0, -0.05 * 1.0, 5.0 + 0.05 * 2000.0])
    assert second[2] == -2000.0 + 0.05 * 1000.0  # the second number became -1000
    assert logits[1, 2] == 5.0  # the caller's own numbers are left alone


def test_survivors_are_the_best_texts_without_repeats():
    texts = ["a", "b", "a", "c"]
    assert survivors([0.4, 0.9, 0.5, 0.1], texts, 2) == [1, 2]
    assert survivors([0.5, 0.5, 0.5, 0.5], texts, 4) == [3, 2, 1]
