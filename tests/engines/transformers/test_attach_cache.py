"""Evidence lives as long as the cached image positions do: kept, copied, cropped and foreign caches."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import DynamicCache

import reweigh
import twin
from checkpoints import VOCABULARY
from reweigh.errors import UnsupportedError

pytestmark = pytest.mark.numerics

BETA = 4.0
FAMILIES = [
    "llava",
    "llava_next",
    "qwen2_5_vl",
    "internvl",
    "gemma3",
]  # InstructBLIP sees its image once only
TURN = " What else is there?"


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case, beta=BETA):
    return reweigh.attach(case.model, table=twin.table(VOCABULARY), beta=beta)


def generate(case, inputs, steps=5, **options):
    kept = {
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        "min_new_tokens": steps,
    }
    with torch.no_grad():
        return case.model.generate(**inputs, **{**kept, "max_new_tokens": steps, **options})


def continued(inputs, output, more):
    """The whole conversation so far, and more tokens, as the next turn's inputs."""
    grown = dict(inputs)
    row = torch.cat([output.sequences, more], dim=1)
    extra = row.shape[1] - inputs["input_ids"].shape[1]
    for name in twin.GROWING:
        if name in inputs:
            value = 1 if name == "attention_mask" else 0
            tail = torch.full((row.shape[0], extra), value, dtype=inputs[name].dtype)
            grown[name] = torch.cat([inputs[name], tail], dim=1)
    grown["input_ids"] = row
    return grown


def words(case, text=TURN):
    return torch.tensor([case.processor.tokenizer(text, add_special_tokens=False)["input_ids"]])


def without_pictures(inputs):
    """A turn without a new image is given without pixels, as transformers wants it."""
    return {name: value for name, value in inputs.items() if name in (*twin.GROWING, "image_grid_thw")}


def logits_agree(one, other):
    assert torch.equal(one.sequences, other.sequences)
    for mine, theirs in zip(one.logits, other.logits, strict=True):
        # rounding may swap two ranks at one position, which moves one token's edit a little
        torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_second_turn_over_a_kept_cache_equals_a_fresh_run(case):
    inputs = case.inputs()
    with attach(case):
        first = generate(case, inputs)
        whole = continued(inputs, first, words(case))
        fresh = generate(case, whole)
        kept = generate(case, without_pictures(whole), past_key_values=first.past_key_values)
        third = continued(whole, kept, words(case, " And?"))
        again = generate(case, without_pictures(third), past_key_values=kept.past_key_values)
        logits_agree(again, generate(case, third))
    logits_agree(kept, fresh)
    assert not torch.equal(fresh.logits[0], generate(case, whole).logits[0])


@pytest.mark.parametrize("family", ["llava"])
def test_a_conversation_begun_in_inference_mode_resumes_outside_it(case):
    inputs = case.inputs()
    with attach(case):
        with torch.inference_mode():
            first = generate(case, inputs)
        whole = continued(inputs, first, words(case))
        branch = copy.deepcopy(first.past_key_values)
        kept = generate(case, without_pictures(whole), past_key_values=first.past_key_values)
        logits_agree(kept, generate(case, whole))
        logits_agree(generate(case, without_pictures(whole), past_key_values=branch), kept)


@pytest.mark.parametrize("family", ["llava", "internvl"])
def test_only_the_new_tokens_may_be_given(case):
    inputs = case.inputs()
    with attach(case):
        first = generate(case, inputs)
        whole = continued(inputs, first, words(case))
        fresh = generate(case, whole)
        past = first.past_key_values.get_seq_length()
        tail = {"input_ids": whole["input_ids"][:, past:], "attention_mask": whole["attention_mask"]}
        kept = generate(case, tail, past_key_values=first.past_key_values)
    for mine, theirs in zip(kept.logits, fresh.logits, strict=True):
        torch.testing.assert_close(mine, theirs, atol=3e-4, rtol=0)


def second_picture(case, seed=2):
    """Tokens and pixels of a further image, as the processor makes them."""
    inputs = case.inputs([seed], ["And here?"], size=(56, 56))
    start = 1 if case.processor.tokenizer.bos_token_id is not None else 0
    return {name: value[:, start:] if name in twin.GROWING else value for name, value in inputs.items()}


# Gemma 3 masks an image after a kept cache differently from a fresh run, in transformers itself
@pytest.mark.parametrize("family", ["llava", "llava_next", "internvl"])
def test_a_second_image_in_the_second_turn_equals_a_fresh_run(case):
    inputs, more = case.inputs(), second_picture(case)
    with attach(case):
        first = generate(case, inputs)
        whole = continued(inputs, first, more["input_ids"])
        for name in ("token_type_ids", "mm_token_type_ids"):
            if name in more:
                whole[name][:, -more[name].shape[1] :] = more[name]
        both = dict(whole)
        for name in ("pixel_values", "image_sizes"):
            if name in inputs:
                both[name] = padded_cat(inputs[name], more[name])
        fresh = generate(case, both)
        only_new = {**whole, **{name: value for name, value in more.items() if name not in twin.GROWING}}
        branch = copy.deepcopy(first.past_key_values)
        kept = generate(case, only_new, past_key_values=first.past_key_values)
        logits_agree(kept, fresh)
        if case.family == "llava":  # the same with nothing but the new tokens, and a mask of everything
            tail = only_new["input_ids"][:, branch.get_seq_length() :]
            short = generate(case, {**only_new, "input_ids": tail}, past_key_values=branch)
            for mine, theirs in zip(short.logits, kept.logits, strict=True):
                torch.testing.assert_close(mine, theirs, atol=0.02, rtol=0)
    rows = twin.strengths_of(case.model, both, twin.table(VOCABULARY))
    with twin.hand_edited(case.model, rows, BETA):
        logits_agree(kept, generate(case, both))


def padded_cat(one, other):
    """LLaVA-NEXT pads the number of crops."""
    if one.dim() == 5 and one.shape[1] != other.shape[1]:
        most = max(one.shape[1], other.shape[1])
        one, other = (
            torch.cat([part, part.new_zeros(1, most - part.shape[1], *part.shape[2:])], dim=1)
            for part in (one, other)
        )
    return torch.cat([one, other])


@pytest.mark.parametrize("family", ["llava", "internvl"])
def test_an_image_after_a_turn_without_one(case):
    """Turn one is text and stays the base model's; turn two brings the image and is edited."""
    inputs, more = case.inputs([None], ["Is there a clock?"]), second_picture(case)
    base = generate(case, inputs)
    with attach(case):
        first = generate(case, inputs)
        logits_agree(first, base)
        whole = continued(inputs, first, more["input_ids"])
        if "token_type_ids" in more:
            tail = torch.zeros_like(whole["input_ids"])
            tail[:, -more["token_type_ids"].shape[1] :] = more["token_type_ids"]
            whole["token_type_ids"] = tail
        whole |= {name: value for name, value in more.items() if name not in twin.GROWING}
        fresh = generate(case, whole)
        kept = generate(case, whole, past_key_values=first.past_key_values)
    logits_agree(kept, fresh)
    assert not torch.equal(fresh.logits[0], generate(case, whole).logits[0])


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_a_copied_cache_branches(case):
    inputs = case.inputs()
    with attach(case):
        first = generate(case, inputs)
        branch = copy.deepcopy(first.past_key_values)
        one, two = (
            continued(inputs, first, words(case, text)) for text in (" What else?", " Where is the dog?")
        )
        kept = generate(case, without_pictures(one), past_key_values=first.past_key_values)
        other = generate(case, without_pictures(two), past_key_values=branch)
        logits_agree(kept, generate(case, one))
        logits_agree(other, generate(case, two))


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_a_cache_cropped_after_the_image_keeps_its_evidence(case):
    inputs = case.inputs()
    length = inputs["input_ids"].shape[1]
    with attach(case):
        first = generate(case, inputs)
        first.past_key_values.crop(length - first.past_key_values.get_seq_length())
        assert first.past_key_values.get_seq_length() == length
        whole = continued(inputs, first, words(case))
        whole["input_ids"][:, length : length + 5] += 1  # another answer in place of the cropped one
        kept = generate(case, without_pictures(whole), past_key_values=first.past_key_values)
        logits_agree(kept, generate(case, whole))


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_cropped_before_the_image_forgets_it(case):
    inputs = case.inputs()
    at = int((inputs["input_ids"][0] == case.model.config.image_token_id).nonzero().min())
    other = {**inputs, **{k: v for k, v in case.inputs([5]).items() if k == "pixel_values"}}
    with attach(case):
        first = generate(case, inputs)
        first.past_key_values.crop(at - 1 - first.past_key_values.get_seq_length())
        kept = generate(case, other, past_key_values=first.past_key_values)
        logits_agree(kept, generate(case, other))


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_cropped_to_text_alone_is_the_base_model(case):
    inputs = case.inputs()
    at = int((inputs["input_ids"][0] == case.model.config.image_token_id).nonzero().min())
    text = torch.cat([inputs["input_ids"][:, :at], words(case)], dim=1)
    plain = {"input_ids": text, "attention_mask": torch.ones_like(text)}
    with attach(case):
        first = generate(case, inputs)
        first.past_key_values.crop(at - first.past_key_values.get_seq_length())
        kept = generate(case, plain, past_key_values=first.past_key_values)
    logits_agree(kept, generate(case, plain))


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_cropped_inside_the_image_is_refused(case):
    inputs = case.inputs()
    at = int((inputs["input_ids"][0] == case.model.config.image_token_id).nonzero().min())
    with attach(case):
        first = generate(case, inputs)
        first.past_key_values.crop(at + 3 - first.past_key_values.get_seq_length())
        text = torch.cat([inputs["input_ids"][:, : at + 3], words(case)], dim=1)
        plain = {"input_ids": text, "attention_mask": torch.ones_like(text)}
        with pytest.raises(UnsupportedError, match="cropped"):
            generate(case, plain, past_key_values=first.past_key_values)


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_filled_outside_is_refused_with_the_way_out(case):
    inputs = case.inputs()
    first = generate(case, inputs)
    whole = without_pictures(continued(inputs, first, words(case)))
    with attach(case), pytest.raises(UnsupportedError, match="session") as caught:
        generate(case, whole, past_key_values=first.past_key_values)
    assert "with" in caught.value.hint
    one, other = attach(case), attach(case)
    with one:
        first = generate(case, inputs)
    with other, pytest.raises(UnsupportedError, match="seen"):
        generate(case, whole, past_key_values=first.past_key_values)


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_that_grew_outside_in_between_is_refused(case):
    """Columns were added while nobody looked: an image among them would be unknown."""
    inputs = case.inputs()
    rw = attach(case)
    with rw:
        first = generate(case, inputs)
    whole = continued(inputs, first, words(case))
    between = generate(case, without_pictures(whole), past_key_values=first.past_key_values)
    later = without_pictures(continued(whole, between, words(case)))
    with rw, pytest.raises(UnsupportedError, match="seen"):
        generate(case, later, past_key_values=between.past_key_values)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_an_empty_cache_of_the_users_own_and_a_reused_one(case):
    inputs = case.inputs()
    with attach(case):
        expected = generate(case, inputs)
        cache = DynamicCache(config=case.model.config.get_text_config())
        logits_agree(generate(case, inputs, past_key_values=cache), expected)


@pytest.mark.parametrize("family", ["llava"])
def test_returned_sequences_can_be_continued_together(case):
    """A cache of one prompt and three samples has three rows; the next turn brings three."""
    inputs = case.inputs()
    torch.manual_seed(3)
    with attach(case):
        no_images = [case.model.config.image_token_id]
        first = generate(case, inputs, do_sample=True, num_return_sequences=3, suppress_tokens=no_images)
        three = {name: value.repeat(3, *[1] * (value.dim() - 1)) for name, value in inputs.items()}
        whole = continued(three, first, words(case).repeat(3, 1))
        kept = generate(case, without_pictures(whole), past_key_values=first.past_key_values)
        logits_agree(kept, generate(case, whole))


@pytest.mark.parametrize("family", ["llava", "internvl", "gemma3"])
def test_a_hand_written_loop_with_a_cache(case):
    """No ``generate`` at all: plain forward passes, the prompt first, then one token at a time."""
    inputs = case.inputs()
    with attach(case), torch.no_grad():
        expected = generate(case, inputs)
        output = case.model(**inputs, use_cache=True)
        for step, logits in enumerate(expected.logits):
            torch.testing.assert_close(output.logits[:, -1], logits, atol=3e-4, rtol=0)
            token = expected.sequences[:, inputs["input_ids"].shape[1] + step][:, None]
            output = case.model(input_ids=token, past_key_values=output.past_key_values)


@pytest.mark.parametrize("family", ["llava"])
def test_a_hand_written_prefill_in_chunks(case):
    """Text, then the image, then the rest: what chunked prefill is where the image survives it."""
    inputs = case.inputs([(1, 2)], ["What are they?"])
    ids = inputs["input_ids"]
    shown = (ids[0] == case.model.config.image_token_id).nonzero().flatten()
    split = int(shown[len(shown) // 2])
    per_image = len(inputs["pixel_values"]) // 2
    bounds = [(0, 2), (2, split), (split, int(shown[-1]) + 2), (int(shown[-1]) + 2, ids.shape[1])]
    pixels = [None, inputs["pixel_values"][:per_image], inputs["pixel_values"][per_image:], None]
    with attach(case), torch.no_grad():
        expected = case.model(**inputs).logits[:, -1]
        cache = None
        for (start, stop), shots in zip(bounds, pixels, strict=True):
            part = {"input_ids": ids[:, start:stop], "pixel_values": shots, "past_key_values": cache}
            if "token_type_ids" in inputs:
                part["token_type_ids"] = inputs["token_type_ids"][:, start:stop]
            output = case.model(**{k: v for k, v in part.items() if v is not None}, use_cache=True)
            cache = output.past_key_values
    torch.testing.assert_close(output.logits[:, -1], expected, atol=3e-4, rtol=0)
