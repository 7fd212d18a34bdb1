"""Crops, prompts with other pictures in them, and whose picture a row shows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import reweigh
from checkpoints import FAMILIES, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import build_inputs, encode
from reweigh.rivals.halc.pictures import crop, with_pictures


def halc(model, processor):
    """HALC that looks every word up, detects nothing and likes longer texts better."""
    return reweigh.decoder(
        "halc",
        model,
        processor,
        detect=lambda image, word: [],
        match=lambda image, texts: [len(text) for text in texts],
        is_entity=bool,
    )


@settings(max_examples=60)
@given(st.integers(2, 90), st.integers(2, 90), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_a_crop_is_the_one_that_pillow_makes_of_broken_numbers(wide, high, edges):
    image = picture(1, (wide, high))
    left, right = sorted(edges[:2])
    top, bottom = sorted(edges[2:])
    plain = image.crop((left * wide, top * high, right * wide, bottom * high))
    found = crop(image, (left, top, right, bottom))
    if plain.width and plain.height:
        assert found.tobytes() == plain.tobytes()
    assert found.width >= 1
    assert found.height >= 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_with_another_picture_is_what_the_processor_makes_of_it(family, loaded):
    model, processor = loaded(family)
    old, new = picture(4, (56, 56)), picture(5, (98, 42))
    texts = ["What is it?", "Describe it, please."]
    inputs = build_inputs(model, processor, [old, old], texts)
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    for row, text in enumerate(texts):
        own = ids[row][mask[row].bool()].tolist()
        made = with_pictures(find_anatomy(model), processor, inputs, row, own, [new, old])
        wanted = build_inputs(model, processor, [new, old], [text] * 2)
        assert made.keys() == wanted.keys()
        for view in (0, 1):  # padding may be another token, at another place
            assert unpadded(made, view) == unpadded(wanted, view)
        for name, value in wanted.items():
            if name not in ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids"):
                same = inputs[name][[row, row]] if name.startswith("qformer") else value
                assert torch.equal(same, made[name]), name


def unpadded(inputs, row):
    """Each number that belongs to a token of a row."""
    seen = inputs["attention_mask"][row].bool()
    names = ("input_ids", "mm_token_type_ids", "token_type_ids")
    return {name: inputs[name][row][seen].tolist() for name in names if name in inputs}


def test_pictures_are_asked_for_one_for_each_row(loaded, batch, monkeypatch):
    model, processor = loaded("qwen2_5_vl")
    session = halc(model, processor)
    with session, pytest.raises(InputError, match="pictures"):
        model.generate(**batch("qwen2_5_vl"), max_new_tokens=1, do_sample=False)
    with session.using(pictures=[picture(1)]), pytest.raises(InputError, match="1 pictures"):
        model.generate(**batch("qwen2_5_vl"), max_new_tokens=1, do_sample=False)
    text = build_inputs(model, processor, [picture(1), None], ["What is it?", "Tell me a story."])
    with session.using(pictures=[picture(1)] * 2), pytest.raises(InputError, match="no image"):
        model.generate(**text, max_new_tokens=1, do_sample=False)
    assert isinstance(session.describe(picture(1), max_new_tokens=2), str)
    monkeypatch.setattr(model, "name_or_path", "")  # no processor can be found beside it
    with pytest.raises(InputError, match="processor"):
        halc(model, None)


def test_a_prompt_of_several_images_is_refused(loaded):
    """Crops of one picture would take the place of both, and of the words between them."""
    model, processor = loaded("llava")
    text = "USER: <image>\nand <image>\nwhat? ASSISTANT:"
    inputs = encode(model, processor, [text], [[picture(1), picture(2)]])
    with (
        halc(model, processor).using(pictures=[picture(1)]),
        pytest.raises(UnsupportedError, match="several images"),
    ):
        model.generate(**inputs, max_new_tokens=1, do_sample=False)
