"""ONLY equals its side path and its rule written out by hand."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from llama_by_hand import embedded, forward

import generating
import reweigh
from reweigh.errors import UnsupportedError
from reweigh.rivals.only import text_heads, together_or_against

pytestmark = pytest.mark.numerics

run = functools.partial(generating.run, steps=4)


def heads_twin(weights, text, image):
    """Head by head and group by group; ``weights`` (H, S), groups as lists of columns."""
    left = weights.astype(np.float64).copy()
    ratios = []
    for head in left:
        entropies = []
        for group in (text, image):
            own = head[group]
            own[own > own.mean() + own.std(ddof=1)] = 0
            head[group] = own
            total = own.sum()
            if total == 0:
                entropies.append(0.0 if group is text else np.inf)
            else:
                shares = own / total
                entropies.append(float(-(shares * np.log(shares + 1e-6)).sum()))
        ratios.append(entropies[0] / entropies[1])
    left[np.array(ratios) < np.mean(ratios)] = 0
    return left


@given(st.integers(0, 10_000), st.integers(2, 6))
def test_heads_are_cut_as_written_out(seed, heads):
    draw = np.random.default_rng(seed)
    weights = draw.dirichlet(np.full(14, 0.4), size=heads)
    text, image = [1, 2, 9, 10, 11, 12], [3, 4, 5, 6, 7, 8]  # 0 and 13 (padding) belong to neither
    masks = torch.zeros(2, 1, 1, 1, 14, dtype=torch.bool)
    masks[0, ..., text], masks[1, ..., image] = True, True
    found = text_heads(torch.tensor(weights)[None, :, None], *masks)[0, :, 0]
    np.testing.assert_allclose(found.numpy(), heads_twin(weights, text, image), atol=1e-12)


@given(st.integers(0, 10_000), st.floats(0.0, 2.0))
def test_the_rule_is_the_written_out_one(seed, gamma):
    draw = np.random.default_rng(seed)
    main, reference = draw.normal(size=(3, 9)) * 2, draw.normal(size=(3, 9))
    reference[0] = main[0] + 0.01 * reference[0]
    found = together_or_against(torch.tensor(main), torch.tensor(reference), 3.0, 1.0, gamma, 0.1).numpy()
    for row in range(3):
        p, q = (np.exp(x - x.max()) / np.exp(x - x.max()).sum() for x in (main[row], reference[row]))
        close = np.abs(p - q).sum() < gamma
        wanted = main[row] + 3 * reference[row] if close else 2 * main[row] - reference[row]
        wanted[main[row] < main[row].max() + np.log(0.1)] = -np.inf
        np.testing.assert_allclose(found[row], wanted, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.0, 2.0])
@pytest.mark.parametrize("layer", [0, 1])
def test_answers_equal_a_side_path_written_by_hand(gamma, layer, loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    with reweigh.decoder("only", model, processor, gamma=gamma, layer=layer, beta=0.0):
        found = run(model, inputs)
    length = inputs["input_ids"].shape[1]
    tokens = found.sequences[:, length:-1]
    ids = torch.cat([inputs["input_ids"], tokens], dim=1)[0]
    image = (ids[:length] == model.config.image_token_id).nonzero().flatten().tolist()
    states, streams, maps = embedded(model, inputs, tokens), {}, {}
    streams[-1] = states

    def keep(number, now):
        streams[number] = now
        return now

    logits = forward(model, states, look=lambda number, weights: maps.update({number: weights}), after=keep)
    decoder = model.model.language_model
    block, last = decoder.layers[layer], decoder.layers[-1]
    heads, size = model.config.text_config.num_attention_heads, block.self_attn.head_dim
    with torch.no_grad():
        values = block.self_attn.v_proj(block.input_layernorm(streams[layer - 1]))[0]
        values = values.view(len(ids), -1, size).repeat_interleave(
            heads * size // values.shape[-1], dim=1
        )  # (S, H, size)
        for step, mine in enumerate(found.logits):
            place = length - 1 + step
            text = [column for column in range(1, place + 1) if column not in image]
            weights = maps[layer][0, :, place, : place + 1].numpy()
            left = torch.tensor(heads_twin(weights, text, image), dtype=torch.float32)
            mixed = torch.einsum("hs,shd->hd", left, values[: place + 1]).reshape(1, -1)
            side = 0.2 * streams[len(decoder.layers) - 2][0, place] + last.input_layernorm(
                block.self_attn.o_proj(mixed)
            )
            side = side + last.mlp(last.post_attention_layernorm(side))
            final = decoder.norm(streams[len(decoder.layers) - 1][0, place])
            reference = model.lm_head(decoder.norm(side) + 0.5 * final)
            main = logits[:, place]
            wanted = main + 3 * reference if gamma else 2 * main - reference
            torch.testing.assert_close(mine, wanted, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "internvl"])
def test_each_row_decides_by_itself(family, loaded, batch):
    model, processor = loaded(family)
    with reweigh.decoder("only", model, processor):
        both = run(model, batch(family))
        for row in (0, 1):
            alone = run(model, batch(family, rows=(row,)))
            torch.testing.assert_close(both.logits[0][row], alone.logits[0][0], atol=5e-3, rtol=1e-3)


def test_a_family_with_other_blocks_is_refused(loaded):
    with pytest.raises(UnsupportedError, match="Llama"):
        reweigh.decoder("only", *loaded("gemma3"))
