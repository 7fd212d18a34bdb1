"""DoLa equals its formula on the model's own hidden states."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from layers_by_hand import divergence, edited, head_of, log_softmax, steps

import reweigh
from checkpoints import BLOCKS, FAMILIES


@pytest.mark.parametrize("layers", [[0, 1, 2], [1, BLOCKS]])
@pytest.mark.parametrize("family", FAMILIES)
def test_dola(family, layers, loaded, batch):
    """The last index of ``hidden_states`` is normed; the earlier ones are not."""
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(loaded(family)[0])
    found = edited(model, processor, inputs, "dola", layers=layers)
    for (final, states), y in zip(steps(model, inputs), found, strict=True):
        f = log_softmax(final)
        early = []
        for j in layers:
            early.append(states[j][:, -1].detach().numpy() @ head.T)
        for row in range(len(f)):
            q = [log_softmax(one[row]) for one in early]
            best = int(np.argmax([divergence(f[row], one) for one in q]))
            keep = ~(f[row] < f[row].max() + np.log(0.1))
            wanted = np.where(keep, f[row] - q[best], -np.inf)
            np.testing.assert_allclose(y[row], wanted, atol=3e-4)


def test_dola_without_a_cut_contrasts_raw_logits(loaded, batch):
    model, processor = loaded("llava")
    inputs, head = batch("llava"), head_of(loaded("llava")[0])
    found = edited(model, processor, inputs, "dola", layers=[1], relative_top=0.0)
    for (final, states), y in zip(steps(model, inputs), found, strict=True):
        np.testing.assert_allclose(y, final - states[1][:, -1].numpy() @ head.T, atol=1e-4)


def test_dola_repeats_less_after_the_contrast_unless_told(loaded, batch, recorder):
    """The penalty acts on the contrasted scores, as in the official program."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    output = {"output_scores": True, "output_logits": True, "return_dict_in_generate": True}
    with reweigh.decoder("dola", model, processor, layers=[1]):
        result = model.generate(**inputs, max_new_tokens=2, do_sample=False, **output)
        plain = model.generate(**inputs, max_new_tokens=2, do_sample=False, repetition_penalty=1.0, **output)
    y, scored = result.logits[0][0], result.scores[0][0]
    seen = torch.unique(inputs["input_ids"])
    wanted = y.clone()
    wanted[seen] = torch.where(y[seen] < 0, y[seen] * 1.2, y[seen] / 1.2)
    torch.testing.assert_close(scored, wanted)
    assert torch.equal(plain.scores[0], plain.logits[0])


def test_dola_serves_a_text_only_model():
    import transformers as hf

    torch.manual_seed(0)
    config = hf.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=4, num_attention_heads=2
    )
    model = hf.LlamaForCausalLM(config).eval()
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    with reweigh.decoder("dola", model):
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False, pad_token_id=0
        )
    assert output.shape == (2, 7)
