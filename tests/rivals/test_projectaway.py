"""ProjectAway equals its formula and a decoder written by hand."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from llama_by_hand import embedded, forward

import generating
import reweigh
from checkpoints import picture
from reweigh.errors import InputError
from reweigh.families.prompts import build_inputs
from reweigh.rivals.projectaway import project_away
from reweigh.rivals.tools.inputs import word_tokens
from sameness import assert_same

STEPS = 4
run = functools.partial(generating.run, steps=STEPS)
WORDS = ["image", "detail"]


def away_twin(states, targets, weight):
    states = states.copy()
    for target in targets:
        before = states.copy()
        for row in range(states.shape[0]):
            for place in range(states.shape[1]):
                source = before[row, place]
                share = float(source @ target) / float(target @ target)
                if share > 0:
                    states[row, place] -= weight * share * target
    return states


def test_projection_is_the_written_out_one_word_after_word():
    draw = np.random.default_rng(3)
    states, targets = draw.normal(size=(2, 5, 6)), draw.normal(size=(3, 6))
    found = project_away(torch.tensor(states), list(torch.tensor(targets)), 1.5)
    np.testing.assert_allclose(found.numpy(), away_twin(states, targets, 1.5), rtol=1e-9)


def test_weight_one_removes_the_positive_part_and_leaves_the_negative():
    target = torch.tensor([2.0, 0.0])
    states = torch.tensor([[[3.0, 1.0], [-3.0, 1.0]]])
    assert project_away(states, [target], 1.0).tolist() == [[[0.0, 1.0], [-3.0, 1.0]]]


def test_a_word_without_a_state_takes_nothing_out():
    """An embedding of zeros (a padding token's) has no direction; the official program leaves states alone, too."""
    states = torch.randn(1, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(project_away(states, [torch.zeros(4)], 1.5), states)


def test_whole_answers_equal_a_decoder_written_by_hand(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    options = {"erase": WORDS, "image_layer": 1, "text_layer": 2}
    with reweigh.decoder("projectaway", model, processor, **options):
        found = run(model, inputs)
    targets = []
    for word in WORDS:
        ids = torch.tensor([[processor.tokenizer.bos_token_id, *word_tokens(processor, word)]])
        with torch.no_grad():
            inner = model.model.language_model(input_ids=ids, output_hidden_states=True)
        targets.append(inner.hidden_states[2][0, -1].numpy())
    length = inputs["input_ids"].shape[1]
    tokens = found.sequences[:, length:-1]
    image = torch.cat([inputs["input_ids"], tokens], dim=1)[0] == model.config.image_token_id

    def after(layer, states):
        if layer == 1:
            states = states.clone()
            states[:, image] = torch.tensor(away_twin(states[:, image].numpy(), targets, 1.5))
        return states

    wanted = forward(model, embedded(model, inputs, tokens).detach(), after=after)
    for step, logits in enumerate(found.logits):
        torch.testing.assert_close(logits, wanted[:, length - 1 + step], atol=5e-4, rtol=1e-3)
    assert not torch.equal(run(model, inputs).logits[0], found.logits[0])


def test_a_call_has_words_of_its_own_and_text_rows_are_left_alone(loaded):
    model, processor = loaded("llava")
    inputs = build_inputs(model, processor, [picture(1), None], ["What is it?", "Tell me a story."])
    base = run(model, inputs)
    session = reweigh.decoder("projectaway", model, processor, erase=[], weight=4.0)
    with session:
        assert_same(base, run(model, inputs))
    with session.using(erase=WORDS):
        ours = run(model, inputs)
    with reweigh.decoder("projectaway", model, processor, erase=WORDS, weight=4.0):
        made = run(model, inputs)
    assert_same(ours, made)
    assert not torch.equal(base.logits[0][0], ours.logits[0][0])
    assert torch.equal(base.logits[0][1], ours.logits[0][1])


def test_what_cannot_be_erased_is_refused(loaded, monkeypatch):
    model, processor = loaded("llava")
    monkeypatch.setattr(model, "name_or_path", "")  # no processor can be found beside it
    with pytest.raises(InputError, match="erase"):
        reweigh.decoder("projectaway", model, processor)
    with pytest.raises(InputError, match="words"):
        reweigh.decoder("projectaway", model, processor, erase="dog")
    with pytest.raises(InputError, match="layer 9"):
        reweigh.decoder("projectaway", model, processor, erase=[], image_layer=9)
    with pytest.raises(InputError, match="processor"):
        reweigh.decoder("projectaway", model, erase=[])
