"""DeCo equals its formula on the model's own hidden states."""

from __future__ import annotations

import numpy as np
import pytest
from layers_by_hand import edited, head_of, log_softmax, norm_of, steps

import reweigh
from checkpoints import BLOCKS, FAMILIES


@pytest.mark.parametrize("layers", [[1, 2, 3], [2, BLOCKS]])
@pytest.mark.parametrize("family", FAMILIES)
def test_deco(family, layers, loaded, batch):
    """Every layer is normed once: the last index of ``hidden_states`` already is."""
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(loaded(family)[0])
    found = edited(model, processor, inputs, "deco", layers=layers, alpha=0.6)
    for (final, states), y in zip(steps(model, inputs), found, strict=True):
        for row in range(len(final)):
            p = np.exp(log_softmax(final[row].astype(np.float64)))
            order = np.argsort(-final[row], kind="stable")
            size = min(20, int(np.searchsorted(np.cumsum(p[order]), 0.9) + 1))
            chosen = order[:size]
            last = [states[j][row, -1][None] for j in layers]
            normed = [
                state if j == BLOCKS else norm_of(model, state) for j, state in zip(layers, last, strict=True)
            ]
            early = [state[0].detach().numpy() @ head.T for state in normed]
            sure = [np.exp(log_softmax(one))[chosen].max() for one in early]
            best = int(np.argmax(sure))
            wanted = np.full_like(final[row], -np.inf)
            wanted[chosen] = final[row][chosen] + 0.6 * sure[best] * early[best][chosen]
            np.testing.assert_allclose(y[row], wanted, atol=3e-4)


def test_deco_reads_the_same_share_of_other_depths(loaded):
    model, processor = loaded("llava")
    assert reweigh.decoder("deco", model, processor).decoder.indices == [2, 3]
