"""DoLa, DeCo and ReVisiT equal a recomputation from transformers' own ``hidden_states``, step by step."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reweigh
from checkpoints import BLOCKS, FAMILIES
from reweigh.errors import InputError
from reweigh.rivals.revisit import _indices
from reweigh.rivals.tools.layers import bucket, first_index


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def divergence(p, q):
    m = (np.exp(p) + np.exp(q)) / 2
    return 0.5 * ((m * (np.log(m) - p)).mean(-1) + (m * (np.log(m) - q)).mean(-1))


def steps(model, inputs, count=3):
    """The base model's own choice of tokens with final logits and all hidden states of each step, as arrays."""
    output = model.generate(
        **inputs,
        max_new_tokens=count,
        do_sample=False,
        output_logits=True,
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    return [
        (logits.numpy(), states) for logits, states in zip(output.logits, output.hidden_states, strict=True)
    ]


def head_of(model):
    return model.get_output_embeddings().weight.detach().numpy()


def norm_of(model, states):
    module = model.language_model if hasattr(model, "language_model") else model.model.language_model
    return getattr(module, "norm", None)(states) if hasattr(module, "norm") else module.model.norm(states)


def edited(model, processor, inputs, name, count=3, **options):
    """What the decoder makes of the same passes: its edits are noted, the base model's tokens are kept."""
    attached = reweigh.decoder(name, model, processor, **options)
    edit, kept = attached.decoder.edit, []

    def noted(forward):
        kept.append(edit(forward)[:, -1].clone())

    attached.decoder.edit = noted
    with attached:
        model.generate(**inputs, max_new_tokens=count, do_sample=False, repetition_penalty=1.0)
    return [one.numpy() for one in kept]


@pytest.mark.parametrize("family", FAMILIES)
def test_dola(family, loaded, batch):
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(loaded(family)[0])
    found = edited(model, processor, inputs, "dola", layers=[0, 1, 2])
    for (final, states), y in zip(steps(model, inputs), found, strict=True):
        f = log_softmax(final)
        early = []
        for j in (0, 1, 2):
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


@pytest.mark.parametrize("family", FAMILIES)
def test_deco(family, loaded, batch):
    model, processor = loaded(family)
    inputs, head = batch(family), head_of(loaded(family)[0])
    found = edited(model, processor, inputs, "deco", layers=[1, 2, 3], alpha=0.6)
    for (final, states), y in zip(steps(model, inputs), found, strict=True):
        for row in range(len(final)):
            p = np.exp(log_softmax(final[row].astype(np.float64)))
            order = np.argsort(-final[row], kind="stable")
            size = min(20, int(np.searchsorted(np.cumsum(p[order]), 0.9) + 1))
            chosen = order[:size]
            early = [norm_of(model, states[j][row, -1][None])[0].detach().numpy() @ head.T for j in (1, 2, 3)]
            sure = [np.exp(log_softmax(one))[chosen].max() for one in early]
            best = int(np.argmax(sure))
            wanted = np.full_like(final[row], -np.inf)
            wanted[chosen] = final[row][chosen] + 0.6 * sure[best] * early[best][chosen]
            np.testing.assert_allclose(y[row], wanted, atol=3e-4)


@pytest.mark.parametrize("layers", ["last", "all"])
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
    indices = _indices(layers, BLOCKS, family == "gemma3")
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


def test_official_layer_sets():
    assert bucket("low", 32, False) == list(range(0, 16, 2))
    assert bucket("high", 32, False) == list(range(16, 32, 2))
    assert bucket("low", 40, False) == list(range(0, 20, 2))
    assert bucket("high", 40, False) == list(range(20, 40, 2))
    assert bucket("low", 60, False) == list(range(0, 20, 2))
    assert bucket("high", 80, False) == list(range(60, 80, 2))
    assert bucket("low", 32, True)[0] == 2
    assert (first_index(2, True), first_index(1, True)) == (0, 0)
    assert bucket([3, 31, 32, 99], 32, False) == [3, 31]
    assert _indices("last", 32, False) == [32]
    assert _indices("all", 28, False) == [*range(0, 28, 2), 28]
    assert len(_indices("all", 28, False)) == 15
    assert _indices("high", 32, False) == [*range(16, 32, 2), 32]
    assert _indices([31, 32], 32, False) == [31]
    with pytest.raises(InputError, match="unknown"):
        bucket("middle", 32, False)
    with pytest.raises(InputError, match="layer"):
        bucket([99], 32, False)


def test_deco_reads_the_same_share_of_other_depths(loaded):
    model, processor = loaded("llava")
    assert reweigh.decoder("deco", model, processor).decoder.indices == [2, 3]
