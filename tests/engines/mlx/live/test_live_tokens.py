"""Tokens of both engines, whatever way mlx-vlm generates; what cannot be edited is refused."""

from __future__ import annotations

import contextlib
import gc

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx.utils import tree_map
from mlx_vlm import generate, load, stream_generate

import reweigh
from conftest import QUESTION, TOKENS
from reweigh.errors import InputError, UnsupportedError

SHARED = ("llava", "qwen2_5_vl", "idefics3", "world")
"""Computed alike by both engines, to rounding: their tables pass between them."""


def said(both, number=0, **options):
    """Arguments for mlx-vlm: a picture's inputs, greedy."""
    return {**both.inputs[number], "max_tokens": both.limit, "temperature": 0.0, **options}


@pytest.mark.parametrize("family", SHARED)
def test_tokens_and_evidence_equal_those_of_transformers(engines, family):
    both = engines[family]
    rw = both.attach()
    for number, shown in enumerate(both.pictures):
        with rw.using(beta=0):
            base = rw.answer([shown], [QUESTION], max_new_tokens=both.limit)[0]
        with rw.using() as request:
            edited = rw.answer([shown], [QUESTION], max_new_tokens=both.limit)[0]
        assert base == both.base[number]
        assert edited == both.edited[number]
        found, expected = request.evidence[0], both.evidence[number]
        assert (found.positions, found.patches) == (expected.positions, expected.patches)
        torch.testing.assert_close(found.values, expected.values, rtol=0, atol=1e-3)
    assert [one.tokens for one in both.base] != [one.tokens for one in both.edited]


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "world"])
@pytest.mark.parametrize("size", [None, 1, 7, 4096])
def test_a_prompt_read_in_chunks_gives_the_same_tokens(engines, family, size):
    both = engines[family]
    with both.attach():
        made = generate(*both.mlx, "", **said(both, prefill_step_size=size))
    assert tuple(made.token_ids) == both.edited[0].tokens


def test_streams_are_edited_and_the_model_is_as_before(engines):
    both = engines["llava"]
    model = both.mlx[0]
    kinds = [type(part) for part in (model, model.language_model, *model.layers)]
    with both.attach():
        assert type(model) is not kinds[0]
        tokens = [one.token for one in stream_generate(*both.mlx, "", **said(both)) if not one.finish_reason]
    assert tuple(tokens) == both.edited[0].tokens[: len(tokens)]
    assert len(tokens) >= both.limit - 1
    gc.collect()
    assert [type(part) for part in (model, model.language_model, *model.layers)] == kinds
    assert tuple(generate(*both.mlx, "", **said(both)).token_ids) == both.base[0].tokens


@pytest.mark.parametrize("kind", [mx.float32, mx.bfloat16], ids=str)
def test_beta_0_gives_the_same_bits(engines, kind):
    both = engines["llava"]
    model, processor = load(str(both.folder))
    model.update(tree_map(lambda one: one.astype(kind), model.parameters()))

    def logprobs(beta=None):
        """Log-probabilities of every step, as bits; without a beta, of the plain model."""
        rw = contextlib.nullcontext()
        if beta is not None:
            rw = reweigh.attach(model, processor, table=both.table, beta=beta, force=True)
        with rw:
            return [one.logprobs for one in stream_generate(model, processor, "", **said(both))]

    plain, found, edited = logprobs(), logprobs(0.0), logprobs(both.beta)
    assert {one.dtype for one in found} == {kind}
    assert all(mx.array_equal(a, b) for a, b in zip(plain, found, strict=True))
    assert not mx.array_equal(plain[0], edited[0])


def test_a_prompt_without_image_is_the_base_models(engines):
    both = engines["llava"]
    rw = both.attach()
    inputs = {**rw.prepare([None], ["What is a clock?"]), "max_tokens": 12, "temperature": 0.0}
    plain = [np.array(one.logprobs) for one in stream_generate(*both.mlx, "", **inputs)]
    with rw:
        found = [np.array(one.logprobs) for one in stream_generate(*both.mlx, "", **inputs)]
    assert all(np.array_equal(a, b) for a, b in zip(plain, found, strict=True))


def test_the_edit_comes_before_processors_and_samplers(engines):
    both = engines["llava"]
    seen = []

    def keep(tokens, logits):
        seen.append(np.array(logits)[0])
        return logits

    with both.attach().using(trace=True) as request:
        made = generate(*both.mlx, "", **said(both, logits_processors=[keep]))
    assert tuple(made.token_ids) == both.edited[0].tokens
    for number in range(3):
        step = request.trace.step(number)
        for candidate in step.candidates:
            assert seen[number][candidate.token] == pytest.approx(candidate.edited, abs=1e-5)


def test_penalties_and_seeds_act_on_edited_logits(engines):
    both = engines["world"]
    with both.attach():
        hot = [generate(*both.mlx, "", **said(both, temperature=0.7, seed=3)).token_ids for _ in range(2)]
        strict = generate(*both.mlx, "", **said(both, repetition_penalty=1.5)).token_ids
    assert hot[0] == hot[1]
    assert tuple(strict) != both.edited[0].tokens


def test_every_request_has_its_own_beta(engines):
    both = engines["llava"]
    rw = both.attach()
    with rw.using(beta=0.0):
        assert tuple(generate(*both.mlx, "", **said(both)).token_ids) == both.base[0].tokens
    with rw:
        assert tuple(generate(*both.mlx, "", **said(both)).token_ids) == both.edited[0].tokens
    assert tuple(rw.generate("", **said(both)).token_ids) == both.edited[0].tokens
    assert rw.describe(both.pictures[0], max_new_tokens=TOKENS) == both.edited[0].text


def test_a_kept_cache_keeps_its_evidence(engines):
    from mlx_vlm.generate import PromptCacheState

    both = engines["llava"]
    rw, state = both.attach(), PromptCacheState()
    first = said(both, prompt_cache_state=state)
    with rw:
        assert tuple(generate(*both.mlx, "", **first).token_ids) == both.edited[0].tokens
    asked = rw.prepare([None], ["What is in the image?"])["input_ids"]
    more = {
        **first,
        "input_ids": mx.concatenate([mx.array([state.token_ids]), asked], axis=1),
        "pixel_values": None,
    }
    more["mask"] = mx.ones_like(more["input_ids"])
    whole = {**more, "pixel_values": first["pixel_values"], "prompt_cache_state": None}
    with rw:
        alone = generate(*both.mlx, "", **whole).token_ids
        assert generate(*both.mlx, "", **more).token_ids == alone
    with rw.using(beta=0.0):
        assert generate(*both.mlx, "", **whole).token_ids != alone


def test_a_cache_filled_outside_the_block_is_refused(engines):
    from mlx_vlm.generate import PromptCacheState

    both = engines["llava"]
    rw, state = both.attach(), PromptCacheState()
    made = generate(*both.mlx, "", **said(both, prompt_cache_state=state))
    asked = rw.prepare([None], ["What is in it?"])["input_ids"]
    ids = mx.concatenate([mx.array([state.token_ids]), asked], axis=1)
    with rw, pytest.raises(UnsupportedError, match="outside"):
        generate(*both.mlx, "", input_ids=ids, mask=mx.ones_like(ids), prompt_cache_state=state, max_tokens=4)
    assert made.token_ids


def test_leaving_the_block_within_a_stream_is_refused(engines):
    both = engines["llava"]
    with both.attach():
        stream = stream_generate(*both.mlx, "", **said(both))
        next(stream)
    with pytest.raises(UnsupportedError, match="block"):
        list(stream)
    del stream
    gc.collect()
    with both.attach():
        pass
    assert tuple(generate(*both.mlx, "", **said(both)).token_ids) == both.base[0].tokens


def test_quantized_caches_and_batches_are_refused(engines):
    from mlx_vlm.generate import batch_generate

    both = engines["world"]
    with both.attach(), pytest.raises(UnsupportedError, match="filled outside"):
        generate(*both.mlx, "", **said(both, kv_bits=8, kv_group_size=32, quantized_kv_start=0))
    with both.attach(), pytest.raises(UnsupportedError, match="rows"):
        batch_generate(*both.mlx, prompts=["a clock", "a dog on a sofa"], max_tokens=4)


def test_several_columns_after_the_prompt_are_refused(engines):
    from mlx_vlm.generate import batch_generate
    from mlx_vlm.models.cache import make_prompt_cache

    both = engines["llava"]
    model, rw = both.mlx[0], both.attach()
    inputs = rw.prepare([both.pictures[0]], [QUESTION])
    with rw:
        cache = make_prompt_cache(model.language_model)
        embedded = model.get_input_embeddings(inputs["input_ids"], inputs["pixel_values"])
        model.language_model(inputs["input_ids"], inputs_embeds=embedded.inputs_embeds, cache=cache)
        with pytest.raises(UnsupportedError, match="columns"):
            model.language_model(mx.array([[5, 6, 7]]), cache=cache)
        with pytest.raises(UnsupportedError, match="speculative"):
            model.language_model(mx.array([[5]]), cache=cache, capture_layer_ids=[1])
    with pytest.raises(UnsupportedError, match="block"):
        model.language_model(mx.array([[5]]), cache=cache)
    batch_generate(*both.mlx, prompts=["a clock", "a dog on a sofa"], max_tokens=2)  # of others, it is free


def test_a_forward_without_cache_is_edited_in_every_column(engines):
    both = engines["llava"]
    rw = both.attach()
    inputs = rw.prepare([both.pictures[0]], [QUESTION])
    arguments = [inputs[name] for name in ("input_ids", "pixel_values", "mask")]
    plain = np.array(both.mlx[0](*arguments).logits)
    with rw.using() as request:
        found = np.array(both.mlx[0](*arguments).logits)
    last = request.evidence[0].positions[-1]
    changed = (plain != found).any(-1)[0]
    assert not changed[:last].any()
    assert changed[last + 1 :].sum() > 3


def test_placeholders_without_an_image_are_refused(engines):
    both = engines["llava"]
    inputs = {**said(both), "pixel_values": None}
    with both.attach(), pytest.raises(InputError, match="image"):
        generate(*both.mlx, "", **inputs)


def test_another_decoder_is_refused_in_the_same_block(engines):
    both = engines["llava"]
    with both.attach(), pytest.raises(UnsupportedError, match="another decoder"), both.attach():
        pass


def test_only_attach_and_calibrate_take_an_mlx_model(engines):
    model, processor = engines["llava"].mlx
    for call in (lambda: reweigh.measure(model, {}), lambda: reweigh.decoder("vcd", model, processor)):
        with pytest.raises(UnsupportedError, match="MLX"):
            call()
