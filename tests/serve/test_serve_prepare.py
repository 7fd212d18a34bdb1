"""Rows made ready alone and stacked are the processor's own batch, for each way in which families hold pictures."""

from __future__ import annotations

import pytest
import torch

from checkpoints import load, picture
from checkpoints.families import FAMILIES
from reweigh.errors import InputError
from reweigh.families.processor import chat_template_of
from reweigh.families.prompts import build_inputs
from reweigh.serve.batch import decode
from reweigh.serve.monitor import Metrics
from reweigh.serve.prepare import Prepared, _turn, prepare_inputs, stack, stackable
from reweigh.serve.row import Row
from reweigh.serve.served import Served
from reweigh.serve.wire import Conversation, Message

PROMPTS = ("Please describe this image in detail.", "What is there?", "Describe it.")
SIZES = ((70, 50), (56, 56), (40, 90))


def conversation(text, images=1):
    parts = [{"type": "image_url", "image_url": {"url": "data:"}} for _ in range(images)]
    turn = {"role": "user", "content": [*parts, {"type": "text", "text": text}]}
    return Conversation.model_validate({"messages": [turn]}).messages


@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3"])
def test_stacked_rows_are_the_processors_batch(checkpoint, family):
    model, processor = load(checkpoint(family))
    pictures = [picture(seed, size) for seed, size in enumerate(SIZES)]
    rows = [
        Prepared(prepare_inputs(model, processor, conversation(text), [shown]), "key", 1)
        for text, shown in zip(PROMPTS, pictures, strict=True)
    ]
    assert all(stackable(rows[0].shapes, row.shapes) for row in rows)
    pad = processor.tokenizer.pad_token_id
    stacked, expected = stack(rows, pad), build_inputs(model, processor, pictures, PROMPTS)
    assert set(stacked) == set(expected)
    for name, value in expected.items():
        assert stacked[name].dtype == value.dtype
        assert torch.equal(stacked[name], value), name


@pytest.mark.parametrize("family", FAMILIES)
def test_images_come_where_the_family_was_trained_to_see_them(checkpoint, family):
    model, processor = load(checkpoint(family))
    if not chat_template_of(processor):
        pytest.skip("without a chat template the place is fixed")
    shown = {"type": "image_url", "image_url": {"url": "data:"}}
    before, after = ({"type": "text", "text": text} for text in ("What is there?", "Be brief."))

    def inputs(*parts):
        turns = Conversation.model_validate({"messages": [{"role": "user", "content": list(parts)}]})
        return prepare_inputs(model, processor, turns.messages, [picture(0)])["input_ids"].tolist()

    assert inputs(before, shown) == inputs(shown, before)
    assert inputs(before, shown, after) == inputs(shown, before, after)


def test_images_between_texts_keep_their_places():
    def order(kinds):
        parts = [
            {"type": "text", "text": kind} if kind != "i" else {"type": "image_url", "image_url": {"url": ""}}
            for kind in kinds
        ]
        turn = Message(role="user", content=parts)
        return "".join(part.get("text", "i") for part in _turn(turn)["content"])

    assert order("aib") == "iab"
    assert order("aii") == "iia"
    assert order("aibi") == "aibi"
    assert order("ab") == "ab"


def test_rows_without_image_join_any_batch(checkpoint):
    model, processor = load(checkpoint("llava"))
    shown = Prepared(prepare_inputs(model, processor, conversation("What?"), [picture(0)]), "key", 1)
    plain = Prepared(prepare_inputs(model, processor, conversation("Hi", 0), []), None, 1)
    assert stackable(shown.shapes, plain.shapes)
    assert stackable(plain.shapes, shown.shapes)
    stacked = stack([plain, shown], 0)
    assert stacked["pixel_values"].shape[0] == 1
    assert stacked["attention_mask"][0].tolist()[: -plain.inputs["input_ids"].shape[1]] == [0] * (
        stacked["input_ids"].shape[1] - plain.inputs["input_ids"].shape[1]
    )
    assert not stackable(None, plain.shapes)


def test_rows_of_other_shapes_are_decoded_apart(checkpoint):
    """A Q-Former reads the question too, and pads it in a way of its own."""
    model, processor = load(checkpoint("instructblip"))
    rows = [
        Prepared(prepare_inputs(model, processor, conversation(text), [picture(0)]), "key", 1)
        for text in (PROMPTS[0], PROMPTS[1])
    ]
    assert not stackable(rows[0].shapes, rows[1].shapes)
    assert stackable(rows[0].shapes, rows[0].shapes)


def test_a_model_without_chat_template_takes_one_turn(checkpoint):
    model, processor = load(checkpoint("instructblip"))
    messages = conversation("Hello") + conversation("Again", 0)
    with pytest.raises(InputError, match="user message"):
        prepare_inputs(model, processor, messages, [picture(0)])


def test_the_processors_complaints_become_ours(checkpoint):
    model, processor = load(checkpoint("llava"))
    with pytest.raises(InputError, match="conversation"):
        prepare_inputs(model, processor, conversation("What?", 2), [picture(0)])
    with pytest.raises(InputError, match="image token"):
        prepare_inputs(model, processor, conversation("an <image> more"), [picture(0)])


@pytest.mark.parametrize("family", ["llava_next", "qwen2_5_vl", "internvl", "gemma3"])
def test_a_batch_writes_what_each_row_would_alone(checkpoint, family):
    """Also where a family keeps positions on the model itself, or pads pictures."""
    model, processor = load(checkpoint(family))
    served = Served(model, processor, name=family)
    session = served.session("base", None)

    def written(places):
        pieces = []
        rows = [
            Row(
                place,
                served.prepare(conversation(PROMPTS[place]), [picture(place, SIZES[place])]),
                session,
                pieces.append,
                most=3 + 2 * place,
                evidence=True,
            )
            for place in places
        ]
        decode(rows, served.recall, Metrics())
        return [[one["token"] for p in pieces if p.index == place for one in p.tokens] for place in places]

    together = written([0, 1, 2])
    assert together == [*written([0]), *written([1]), *written([2])]
    assert [len(tokens) for tokens in together] == [3, 5, 7]
