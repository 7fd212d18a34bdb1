"""CODE: the branch's prompt, the description it is made of, and the step, each against a fresh computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reweigh
from checkpoints import FAMILIES, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.prompts import build_inputs
from reweigh.rivals.code import QUESTION

GIVEN = ("A red block beside a blue one.", "Two grey squares.")
PLAIN = {"do_sample": False, "max_new_tokens": 4, "return_dict_in_generate": True, "output_logits": True}


def spied(attached):
    """Note what the branch is given."""
    make, kept = attached.decoder.branch_inputs, []
    attached.decoder.branch_inputs = lambda forward: kept.append(make(forward)) or dict(kept[-1])
    return kept


def numpy_step(a, r, power):
    p, q = (np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in (a, r))
    apart = 0.5 * ((p + q) * np.log2(1 + np.abs(p - q) ** power)).sum()
    y = (2 - apart) * a - (1 - apart) * r
    return np.where(p >= apart * p.max(), y, -np.inf), np.abs(p - apart * p.max()) < 1e-6


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_is_the_formula_on_two_fresh_passes(family, loaded, batch, answer):
    model, processor = loaded(family)
    inputs = batch(family)
    attached = reweigh.decoder("code", model, processor, power=0.5)
    kept = spied(attached)
    with attached.using(descriptions=GIVEN):
        found = model.generate(**inputs, **PLAIN)
    for step, logits in enumerate(found.logits):
        tokens = found.sequences[:, inputs["input_ids"].shape[1] :][:, :step]
        main, reference = answer(model, inputs, tokens), answer(model, kept[0], tokens)
        for row in range(2):
            wanted, close = numpy_step(main[row].double().numpy(), reference[row].double().numpy(), 0.5)
            ours = logits[row].double().numpy()
            np.testing.assert_allclose(ours[~close], wanted[~close], atol=3e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_description_stands_where_the_image_stood(family, loaded, batch):
    model, processor = loaded(family)
    inputs, image = batch(family), model.config.image_token_id
    attached = reweigh.decoder("code", model, processor)
    kept = spied(attached)
    with attached.using(descriptions=GIVEN):
        model.generate(**inputs, **PLAIN)
    assert set(kept[0]) == {"input_ids", "attention_mask"}  # no pixels, no token types
    assert not bool((kept[0]["input_ids"] == image).any())
    texts = [row[mask.bool()].tolist() for row, mask in zip(*kept[0].values(), strict=True)]
    for row in range(2):
        ids = inputs["input_ids"][row][inputs["attention_mask"][row].bool()].tolist()
        first, last = ids.index(image), len(ids) - ids[::-1].index(image)
        words = processor.tokenizer(GIVEN[row])["input_ids"]  # special tokens included
        assert texts[row] == [*ids[:first], *words, *ids[last:]]


@pytest.mark.parametrize("family", FAMILIES)
def test_its_own_description_is_what_the_base_model_says(family, loaded, batch):
    model, processor = loaded(family)
    attached = reweigh.decoder("code", model, processor, description_tokens=6)
    write, written = attached.decoder.write, []
    attached.decoder.write = lambda inputs: written.extend(write(inputs)) or list(written)
    with attached:
        model.generate(**batch(family), **PLAIN)
    asked = build_inputs(model, processor, [picture(1, (70, 50)), picture(2)], [QUESTION] * 2)
    wanted = reweigh.decoder("greedy", model, processor).respond(asked, max_new_tokens=6)
    assert written == [one.text for one in wanted]


def test_a_picture_is_described_once_until_the_model_changes(loaded, batch):
    model, processor = loaded("llava")
    attached = reweigh.decoder("code", model, processor, description_tokens=3)
    decoder, written = attached.decoder, []
    write = decoder.write
    decoder.write = lambda inputs: written.append(len(inputs["input_ids"])) or write(inputs)
    with attached:
        both = model.generate(**batch("llava"), **PLAIN, eos_token_id=None)
        alone = model.generate(**batch("llava", rows=(1,)), **PLAIN, eos_token_id=None)
        assert written == [2]
        assert torch.equal(both.sequences[1, -4:], alone.sequences[0, -4:])
        model.generate(**batch("llava", rows=(2,)), **PLAIN)
        assert written == [2, 1]
        weight = model.lm_head.weight
        with torch.no_grad():
            weight.mul_(1.0)
        model.generate(**batch("llava", rows=(2,)), **PLAIN)
    assert written == [2, 1, 1]


def test_descriptions_can_be_given_for_each_call(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava")
    attached = reweigh.decoder("code", model, processor)
    with attached.using(descriptions=GIVEN):
        wanted = model.generate(**inputs, **PLAIN)
        found = attached.generate(**inputs, **PLAIN)  # joins the block around it
    assert all(torch.equal(a, b) for a, b in zip(found.logits, wanted.logits, strict=True))
    with attached.using(descriptions=["Nothing."] * 2):
        assert not torch.equal(model.generate(**inputs, **PLAIN).logits[0], wanted.logits[0])
    with (
        attached.using(descriptions=["one"]),
        pytest.raises(InputError, match="1 descriptions"),
    ):
        model.generate(**inputs, **PLAIN)


@pytest.mark.parametrize("given", [5, [5], {"a": "b"}, "One text."])
def test_descriptions_that_are_not_texts_are_refused_at_once(given, loaded):
    model, processor = loaded("llava")
    attached = reweigh.decoder("code", model, processor)
    with pytest.raises(InputError, match="descriptions"), attached.using(descriptions=given):
        pass


def test_refusals(loaded, monkeypatch):
    model, processor = loaded("llava")
    monkeypatch.setattr(model, "name_or_path", "")  # no processor can be found beside it
    with pytest.raises(InputError, match="place"):
        reweigh.decoder("code", model)
    with pytest.raises(InputError, match="power"):
        reweigh.decoder("code", model, processor, power=-1)
    two = processor(
        text="USER: <image>\nand <image>\nwhat? ASSISTANT:",
        images=[picture(1), picture(2)],
        return_tensors="pt",
    )
    for given in ({}, {"descriptions": GIVEN}):
        attached = reweigh.decoder("code", model, processor)
        with attached.using(**given), pytest.raises(UnsupportedError, match="several images"):
            model.generate(**two, max_new_tokens=1)
