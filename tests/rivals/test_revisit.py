"""ReVisiT equals its formula on the model's own hidden states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from layers_by_hand import divergence, edited, head_of, log_softmax, steps

import reweigh
from checkpoints import BLOCKS, FAMILIES
from reweigh.rivals.revisit import _indices


@pytest.mark.parametrize("layers", ["last", "all", [1, BLOCKS]])
@pytest.mark.parametrize("family", FAMILIES)
def test_revisit(family, layers, loaded, batch):
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(loaded(family)[0])
    found = edited(model, processor, inputs, "revisit", layers=layers, relative_top=0.05)
    recorded = steps(model, inputs)
    prefill = recorded[0][1]
    anatomy = reweigh.decoder("revisit", model, processor).decoder.anatomy
    from reweigh.families.positions import layout

    spots = layout(anatomy.family, model.config, inputs["input_ids"], inputs)
    indices = layers if isinstance(layers, list) else _indices(layers, BLOCKS, family == "gemma3")
    for (final, _), y in zip(recorded, found, strict=True):
        for row in range(len(final)):
            columns = [column for column, _ in spots[row]]
            f = log_softmax(final[row].astype(np.float64))
            keep = np.flatnonzero(~(f < f.max() + np.log(0.05)))
            p = log_softmax(final[row][keep].astype(np.float64))
            states = np.concatenate([prefill[j][row, columns].numpy() for j in indices])
            q = log_softmax(states.astype(np.float64) @ head[keep].T)
            best = int(np.argmin([divergence(p, one) for one in q])) if len(keep) > 1 else 0
            wanted = np.full(final.shape[1], -np.inf)
            wanted[keep] = p + q[best]
            np.testing.assert_allclose(y[row], wanted, atol=1e-3)


def test_revisit_with_one_plausible_token_gives_zero(loaded):
    model, processor = loaded("llava")
    decoder = reweigh.decoder("revisit", model, processor).decoder
    logits = torch.full((model.config.get_text_config().vocab_size,), -50.0)
    logits[7] = 50.0
    y = decoder.refine(logits, torch.randn(5, 48))
    assert y[7] == 0
    assert int(torch.isinf(y).sum()) == len(logits) - 1
