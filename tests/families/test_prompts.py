"""From pictures and questions to inputs: every family's own placeholders, left padding, and what is missing named."""

from __future__ import annotations

from copy import copy

import pytest
import torch

import reweigh
import twin
from checkpoints import FAMILIES, picture
from reweigh.errors import InputError
from reweigh.families.catalogue import family_of
from reweigh.families.positions import layout
from reweigh.families.processor import prompt_hash
from reweigh.families.prompts import DESCRIBE, build_inputs, render

TEMPLATE = "USER: <image>\n{prompt} ASSISTANT:"


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_are_what_the_processor_gives_for_the_chat_template(case):
    image = picture(1, (70, 50))
    found = build_inputs(case.model, case.processor, [image], [DESCRIBE])
    expected = case.inputs([1])
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_a_batch_are_the_rows_alone_padded_before_the_text(case):
    pictures = [picture(1, (70, 50)), picture(2, (50, 90))]
    prompts = ["What is in the image?", DESCRIBE]
    both = build_inputs(case.model, case.processor, pictures, prompts)
    rows = layout(family_of(case.model.config), case.model.config, both["input_ids"], both)
    for row, (image, prompt) in enumerate(zip(pictures, prompts, strict=True)):
        one = build_inputs(case.model, case.processor, [image], [prompt])
        ids = one["input_ids"][0]
        shown = both["attention_mask"][row].bool()
        assert torch.equal(both["input_ids"][row][shown], ids)
        assert shown[-5:].all()
        alone = layout(family_of(case.model.config), case.model.config, one["input_ids"], one)[0]
        assert len(rows[row]) == len(alone) > 0


def test_pixels_take_the_models_dtype(llava):
    class Half:
        config, device, dtype = llava.model.config, llava.model.device, torch.bfloat16

    found = build_inputs(Half(), llava.processor, [picture(1)], ["Hi"])
    assert found["pixel_values"].dtype == torch.bfloat16
    assert found["input_ids"].dtype == torch.int64


def test_rows_without_image_beside_rows_with_one(llava):
    found = build_inputs(llava.model, llava.processor, [None, picture(1)], ["What?", DESCRIBE])
    image = llava.model.config.image_token_id
    assert (found["input_ids"] == image).any(1).tolist() == [False, True]
    alone = build_inputs(llava.model, llava.processor, [None], ["What?"])
    assert "pixel_values" not in alone


def test_a_processor_that_wants_a_list_for_each_row_gets_an_empty_one(checkpoint):
    gemma = twin.case(checkpoint("gemma3"))
    found = build_inputs(gemma.model, gemma.processor, [None, picture(1)], ["What?", DESCRIBE])
    image = gemma.model.config.image_token_id
    assert (found["input_ids"] == image).any(1).tolist() == [False, True]
    assert len(found["pixel_values"]) == 1
    assert "pixel_values" not in build_inputs(gemma.model, gemma.processor, [None], ["What?"])


def test_a_prompt_without_image_cannot_be_measured(llava):
    inputs = build_inputs(llava.model, llava.processor, [None], ["What is a clock?"])
    with pytest.raises(InputError, match="no image") as caught:
        reweigh.measure(llava.model, inputs)
    assert str(llava.model.config.image_token_id) in str(caught.value)


def test_a_template_stands_in_for_the_chat_template(llava, checkpoint):
    bare = twin.case(checkpoint("llava", bare=True))
    found = build_inputs(bare.model, bare.processor, [picture(1)], [DESCRIBE], template=TEMPLATE)
    expected = build_inputs(llava.model, llava.processor, [picture(1)], [DESCRIBE])
    assert torch.equal(found["input_ids"], expected["input_ids"])


def test_no_chat_template_says_what_to_give(checkpoint):
    bare = twin.case(checkpoint("llava", bare=True))
    with pytest.raises(InputError, match="chat template") as caught:
        build_inputs(bare.model, bare.processor, [picture(1)], [DESCRIBE])
    assert "template=" in str(caught.value)


def test_a_template_must_have_both_places(llava):
    with pytest.raises(InputError, match="prompt"):
        build_inputs(llava.model, llava.processor, [picture(1)], ["Hi"], template="<image>")
    with pytest.raises(InputError, match="placeholder") as caught:
        build_inputs(llava.model, llava.processor, [picture(1)], ["Hi"], template="USER: {prompt}")
    assert "<image>" in str(caught.value)


THINKS = (
    "{% for message in messages %}USER: {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>\n{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT:{% if enable_thinking is defined and enable_thinking is false %}"
    "<think></think>{% endif %}{% endif %}"
)


@pytest.fixture
def thinker(llava):
    """A processor whose chat template has a switch, as those of models that think have."""
    processor = copy(llava.processor)
    processor.chat_template = THINKS
    return processor


def test_arguments_reach_the_chat_template(llava, thinker):
    def text(template):
        found = build_inputs(llava.model, thinker, [picture(1)], ["Hi"], template=template)
        expected = thinker(text=said[-1], images=picture(1), return_tensors="pt")
        assert torch.equal(found["input_ids"], expected["input_ids"])

    said = ["USER: <image>\nHi ASSISTANT:"]
    text(None)
    text({})
    text({"enable_thinking": True})
    said.append("USER: <image>\nHi ASSISTANT:<think></think>")
    text({"enable_thinking": False})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enable_thinkng": False}, "does not read 'enable_thinkng'"),
        ({"enable_thinking": False, "messages": []}, "'messages' cannot be set"),
        ({"add_generation_prompt": False}, "cannot be set"),
        ({"chat_template": "{{ 1 }}"}, "cannot be set"),
    ],
)
def test_arguments_that_would_change_nothing_or_the_prompt_are_refused(llava, thinker, arguments, message):
    with pytest.raises(InputError, match=message):
        build_inputs(llava.model, thinker, [picture(1)], ["Hi"], template=arguments)


def test_arguments_need_a_chat_template(checkpoint):
    bare = twin.case(checkpoint("llava", bare=True))
    with pytest.raises(InputError, match="no chat template that could read 'enable_thinking'"):
        build_inputs(bare.model, bare.processor, [picture(1)], ["Hi"], template={"enable_thinking": True})


def test_arguments_are_part_of_the_prompts_hash(thinker):
    plain, off, on = (
        prompt_hash(thinker, "Hi", template)
        for template in (None, {"enable_thinking": False}, {"enable_thinking": True})
    )
    assert len({plain, off, on}) == 3
    assert prompt_hash(thinker, "Hi", {}) == plain


def test_braces_in_the_question_are_left_alone(llava):
    text = render(llava.model, llava.processor, "what {is} {prompt}?", True, "<image> {prompt}")
    assert text == "<image> what {is} {prompt}?"


@pytest.mark.parametrize(("images", "prompts"), [([picture(1)], []), ([], []), ([picture(1)], ["a", "b"])])
def test_one_of_each_per_row(llava, images, prompts):
    with pytest.raises(InputError, match=f"{len(images)} images"):
        build_inputs(llava.model, llava.processor, images, prompts)


def test_the_processor_puts_instructblips_image_tokens_itself(checkpoint):
    case = twin.case(checkpoint("instructblip"))
    assert render(case.model, case.processor, "Hi", True, None) == "Hi"
    found = build_inputs(case.model, case.processor, [picture(1)], ["Hi"])
    assert int((found["input_ids"] == case.model.config.image_token_index).sum()) == 8


@pytest.mark.parametrize("family", FAMILIES)
def test_a_prompt_with_the_mark_of_a_picture_is_refused_by_name(case):
    mark = (
        getattr(case.processor, "image_token", None)
        or case.processor.tokenizer.convert_ids_to_tokens([case.model.config.image_token_index])[0]
    )
    for image in (picture(1, (70, 50)), None):
        with pytest.raises(InputError, match="picture"):
            build_inputs(case.model, case.processor, [image], [f"What is {mark} here?"])


def test_a_prompt_that_is_not_a_text_is_refused_by_name(llava):
    with pytest.raises(InputError, match="Unicode"):
        build_inputs(llava.model, llava.processor, [picture(1)], ["What \ud83d is it?"])
