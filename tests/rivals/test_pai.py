"""PAI equals a decoder written out by hand."""

from __future__ import annotations

import functools

import pytest
import torch
from llama_by_hand import embedded, forward

import generating
import reweigh

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
