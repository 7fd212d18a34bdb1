"""SID equals a decoder written out by hand."""

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
