"""MCoT equals its formula on the model's own hidden states, and reads an image alike in any number of parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from layers_by_hand import edited, head_of, steps

import reweigh
from checkpoints import BLOCKS, FAMILIES
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.positions import layout
from reweigh.rivals.mcot import Spread

ALPHA = 5.0


def entropies(logits):
    """E(v) of logits (m, V), token by token and in double precision."""
    found = []
    for column in logits.T.astype(np.float64):
        weights = np.exp(column - column.max())
        shares = weights[weights > 0] / weights.sum()
        found.append(-(shares * np.log(shares)).sum() / np.log(len(column)))
    return np.array(found)


@pytest.mark.parametrize("layer", [None, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_mcot(family, layer, loaded, batch):
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(model)
    recorded = steps(model, inputs, 4)
    states = recorded[0][1][BLOCKS if layer is None else layer]
    anatomy = reweigh.decoder("mcot", model, processor).decoder.anatomy
    spots = layout(anatomy.family, model.config, inputs["input_ids"], inputs)
    columns = [[column for column, _ in row] for row in spots]
    entropy = [entropies(states[row, own].numpy() @ head.T) for row, own in enumerate(columns)]
    current = [[entropy[row][final[row].argmax()] for final, _ in recorded] for row in range(len(states))]
    gamma = float(np.mean([np.min(current), np.max(current)]))  # some steps are beyond it, some are not
    found = edited(model, processor, inputs, "mcot", count=4, layer=layer, alpha=ALPHA, gamma=gamma)
    for row in range(len(states)):
        for step, (final, _) in enumerate(recorded):
            penalty = ALPHA * entropy[row] if current[row][step] > gamma else 0.0
            np.testing.assert_allclose(found[step][row], final[row] - penalty, atol=2e-4)


def test_the_threshold_decides_by_the_likeliest_token(loaded):
    decoder = reweigh.decoder("mcot", *loaded("llava"), alpha=2.0, gamma=0.5).decoder
    entropy = torch.tensor([0.9, 0.1, 0.4])
    logits = torch.tensor([[3.0, 1.0, 0.0], [1.0, 3.0, 0.0]])
    y = decoder.penalized(logits, entropy)
    torch.testing.assert_close(y[0], logits[0] - 2.0 * entropy)
    assert torch.equal(y[1], logits[1])


@given(st.integers(0, 10_000), st.integers(2, 9), st.floats(0.0, 60.0))
def test_parts_of_an_image_join_to_the_whole(seed, count, size):
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(count, 5)) * size
    cut = int(draw.integers(1, count))
    parts = [Spread.of(torch.tensor(part)) for part in (logits[:cut], logits[cut:])]
    wanted = entropies(logits)
    for spread in (Spread.of(torch.tensor(logits)), parts[0].joined(parts[1]), parts[1].joined(parts[0])):
        np.testing.assert_allclose(spread.entropy.numpy(), wanted, atol=1e-9)
    assert ((wanted > -1e-12) & (wanted < 1 + 1e-12)).all()


def test_what_has_no_entropy_is_refused(loaded):
    with pytest.raises(UnsupportedError, match="single position"):
        _ = Spread.of(torch.zeros(1, 4)).entropy
    for options in ({"layer": BLOCKS + 1}, {"gamma": 1.5}, {"alpha": -1.0}):
        with pytest.raises(InputError, match=next(iter(options))):
            reweigh.decoder("mcot", *loaded("llava"), **options)
