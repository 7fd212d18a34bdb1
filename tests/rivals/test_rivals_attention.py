"""PAI and SID equal a decoder written out by hand; the registration leaves nothing behind."""

from __future__ import annotations

import functools

import pytest
import torch
from llama_by_hand import embedded, forward
from transformers import AttentionInterface, AttentionMaskInterface

import generating
import reweigh
from checkpoints import FAMILIES
from reweigh.errors import InputError, UnsupportedError

STEPS = 4
run = functools.partial(generating.run, steps=STEPS)


@pytest.fixture
def llava(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    image = (inputs["input_ids"][0] == model.config.image_token_id).nonzero().flatten()
    return model, processor, inputs, image


def test_the_twin_is_the_model(llava):
    model, _, inputs, _ = llava
    with torch.no_grad():
        torch.testing.assert_close(
            forward(model, embedded(model, inputs)), model(**inputs).logits, atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("edit_prefill", [True, False])
def test_pai_amplifies_attention_of_the_last_token(edit_prefill, llava):
    model, processor, inputs, image = llava
    alpha, start = 0.7, 1
    gamma = 1.0 if edit_prefill else 1.5
    attached = reweigh.decoder("pai", model, processor, alpha=alpha, gamma=gamma, start_layer=start)
    raw, edit = [], attached.decoder.edit

    def noted(forward):
        raw.append(forward.logits[:, -1].clone())
        return edit(forward)

    attached.decoder.edit = noted
    with attached:
        tokens = run(model, inputs).sequences[:, inputs["input_ids"].shape[1] :]
    length = inputs["input_ids"].shape[1]

    def amplify(layer, scores):
        """Each token's own row was edited when it was the last one."""
        first = length - 1 if edit_prefill else length
        for row in range(first, scores.shape[2]) if layer >= start else ():
            own = scores[:, :, row, image]
            scores[:, :, row, image] = own + alpha * own.abs()
        return scores

    whole = forward(model, embedded(model, inputs, tokens[:, :-1]), amplify)
    for step in range(STEPS):
        torch.testing.assert_close(raw[step], whole[:, length - 1 + step], atol=1e-4, rtol=1e-4)
    if not edit_prefill:
        with torch.no_grad():
            torch.testing.assert_close(raw[0], model(**inputs).logits[:, -1], atol=1e-4, rtol=1e-4)


def test_pai_guides_by_the_prompt_without_image(llava):
    model, processor, inputs, _ = llava
    gamma = 1.7
    with reweigh.decoder("pai", model, processor, alpha=0.0, gamma=gamma):
        found = run(model, inputs)
    text = inputs["input_ids"][:, inputs["input_ids"][0] != model.config.image_token_id]
    tokens = found.sequences[:, inputs["input_ids"].shape[1] :]
    for step in range(STEPS):
        said = tokens[:, :step]
        with torch.no_grad():
            whole = {**inputs, "input_ids": torch.cat([inputs["input_ids"], said], 1)}
            whole["attention_mask"] = torch.ones_like(whole["input_ids"])
            a = model(**whole).logits[:, -1].log_softmax(-1)
            u = model(input_ids=torch.cat([text, said], 1)).logits[:, -1].log_softmax(-1)
        keep = ~(a < a.max() + torch.log(torch.tensor(0.1)))
        wanted = torch.where(keep, gamma * (a - u) + u, torch.tensor(float("-inf")))
        torch.testing.assert_close(found.logits[step], wanted, atol=3e-4, rtol=1e-3)


def test_sid_keeps_the_least_attended_image_keys(llava):
    model, processor, inputs, image = llava
    keep, layer = 5, 2
    attached = reweigh.decoder("sid", model, processor, keep=keep, layer=layer)
    seen, original = [], attached.decoder.reference
    attached.decoder.reference = lambda forward: seen.append(original(forward)) or seen[-1]
    with attached:
        found = run(model, inputs)
    dropped = []

    def look(number, weights):
        if number == layer - 1:
            row = weights[0, :, -1].mean(0)[image]
            dropped.append(image[row.argsort()[keep:]])

    def mask(number, scores):
        if number >= layer:
            scores[..., dropped[-1]] = scores[..., dropped[-1]].clamp(max=-1e30)
        return scores

    whole = forward(model, embedded(model, inputs), mask, look)
    torch.testing.assert_close(seen[0][:, -1], whole[:, -1], atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        a = forward(model, embedded(model, inputs))[:, -1]
    cut = ~(a < a.max() + torch.log(torch.tensor(0.1)))
    wanted = torch.where(cut, 2 * a - whole[:, -1], torch.tensor(float("-inf")))
    torch.testing.assert_close(found.logits[0], wanted, atol=3e-4, rtol=1e-4)
    assert not torch.allclose(seen[0][:, -1], a, atol=1e-3)


def test_sid_with_every_key_kept_is_the_cut_alone(llava):
    model, processor, inputs, _ = llava
    with reweigh.decoder("sid", model, processor, keep=1000):
        found = run(model, inputs)
    with reweigh.decoder("cut", model, processor):
        cut = run(model, inputs)
    for ours, theirs in zip(found.logits, cut.logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_registered_attention_without_edit_is_the_model(family, loaded, batch):
    """Grouped heads, windows and soft caps included: an edit of zero blocks must change nothing."""
    model, processor = loaded(family)
    inputs = batch(family)
    options = {
        "max_new_tokens": 4,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    base = model.generate(**inputs, **options)
    with reweigh.decoder("pai", model, processor, alpha=0.5, gamma=1.0, start_layer=0, end_layer=0):
        assert model.config.get_text_config()._attn_implementation.startswith("reweigh_")
        same = model.generate(**inputs, **options)
    with reweigh.decoder("pai", model, processor, alpha=0.5, gamma=1.0):
        other = model.generate(**inputs, **options)
    for ours, theirs in zip(same.logits, base.logits, strict=True):
        torch.testing.assert_close(ours, theirs, atol=3e-4, rtol=1e-4)
    assert not torch.allclose(other.logits[0], base.logits[0], atol=1e-3)


def registered():
    names = [*AttentionInterface._global_mapping, *AttentionMaskInterface._global_mapping]
    return [name for name in names if name.startswith("reweigh_")]


@pytest.mark.parametrize("family", FAMILIES)
def test_everything_is_put_back(family, loaded, batch):
    model, processor = loaded(family)
    before = {key: part._attn_implementation for key, part in configs(model).items()}
    with reweigh.decoder("sid", model, processor):
        inside = {key: part._attn_implementation for key, part in configs(model).items()}
        assert len(registered()) == 2
    assert {key: part._attn_implementation for key, part in configs(model).items()} == before
    assert registered() == []
    changed = {key for key in before if inside[key] != before[key]}
    assert changed == {"text_config"}, "the vision tower keeps its own attention"
    with pytest.raises(RuntimeError, match="stop"), reweigh.decoder("opera", model, processor):
        raise RuntimeError("stop")
    assert registered() == []
    assert {key: part._attn_implementation for key, part in configs(model).items()} == before


def configs(model):
    return {"": model.config, **{key: getattr(model.config, key) for key in model.config.sub_configs}}


@pytest.mark.parametrize("method", ["pai", "sid", "opera"])
def test_attention_that_cannot_be_switched_is_refused(method, loaded, monkeypatch):
    model, processor = loaded("llava")
    monkeypatch.setattr(model, "set_attn_implementation", lambda name: None)
    attached = reweigh.decoder(method, model, processor)
    with pytest.raises(UnsupportedError, match="edited"):
        attached.__enter__()
    assert registered() == []


def test_options_out_of_range(loaded):
    model, processor = loaded("llava")
    with pytest.raises(InputError, match="gamma"):
        reweigh.decoder("pai", model, processor, gamma=0.5)
    with pytest.raises(InputError, match="start_layer"):
        reweigh.decoder("pai", model, processor, start_layer=9)
    with pytest.raises(InputError, match="end_layer"):
        reweigh.decoder("pai", model, processor, end_layer=-1)
    with pytest.raises(InputError, match="layer 4"):
        reweigh.decoder("sid", model, processor, layer=4)
