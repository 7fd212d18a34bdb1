"""A branch inside generate equals a fresh computation: batches, padding, beams, crops, copies, rotary offsets."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from transformers import DynamicCache

import reweigh
from checkpoints import FAMILIES
from reweigh.engines.session import tie
from reweigh.engines.transformers.arguments import batch_on
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.rivals.tools.branch import Branch
from reweigh.rivals.tools.contrast import contrasted
from reweigh.rivals.vcd import VCD

METHODS = {"vcd": {}, "pai": {"alpha": 0.0, "gamma": 1.5}, "icd": {}}
STEPS = 5


def spy(decoder, kept):
    """Note the branch's logits and its inputs."""
    original, make = decoder.reference, decoder.branch_inputs
    inputs = {}

    def reference(forward):
        logits = original(forward)
        kept.append(logits[:, -1].clone())
        return logits

    def noted(forward):
        inputs.update(make(forward))
        return dict(inputs)

    decoder.reference, decoder.branch_inputs = reference, noted
    return inputs


def branches(cache):
    """The branches that follow a cache."""
    return list(batch_on(cache).branches.values())


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", FAMILIES)
def test_branch_equals_a_fresh_prefill_of_its_own_inputs(
    family, method, beams, loaded, batch, recorder, answer
):
    model, processor = loaded(family)
    inputs, seen = batch(family), []
    attached = reweigh.decoder(method, model, processor, **METHODS[method])
    branch_inputs = spy(attached.decoder, seen)
    with attached:
        model.generate(
            **inputs, max_new_tokens=STEPS, do_sample=False, num_beams=beams, logits_processor=[recorder]
        )
    assert len(seen) >= STEPS - 1
    length = inputs["input_ids"].shape[1]
    for ids, logits in list(zip(recorder.ids, seen, strict=True))[-2:]:
        tokens = ids[:, length:]
        for beam in range(beams):  # the oracle reads each beam's rows as a batch of their own
            own = slice(beam, None, beams)
            torch.testing.assert_close(
                logits[own], answer(model, branch_inputs, tokens[own]), atol=2e-4, rtol=1e-4
            )


def test_beams_really_reorder_in_the_test_above(loaded, batch, recorder):
    model, processor = loaded("llava")
    original, moved = Branch.reorder, []
    attached = reweigh.decoder("vcd", model, processor)
    with pytest.MonkeyPatch.context() as patch, attached:
        patch.setattr(
            Branch, "reorder", lambda self, rows: (moved.append(rows.tolist()), original(self, rows))
        )
        model.generate(**batch("llava"), max_new_tokens=STEPS, do_sample=False, num_beams=3)
    assert any(rows != sorted(set(range(6))) for rows in moved[1:])


@pytest.mark.parametrize("family", FAMILIES)
def test_main_pass_is_left_alone(family, loaded, batch):
    """The branch neither grows the main cache nor moves its positions: raw main logits are the base model's."""
    model, processor = loaded(family)
    inputs = batch(family)
    options = {
        "max_new_tokens": 4,
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    base = model.generate(**inputs, **options)
    attached = reweigh.decoder("vcd", model, processor, alpha=1.0)
    attached.decoder.beta, seen = 0.0, []
    edit = attached.decoder.edit

    def silent(forward):
        edit(forward)
        seen.append(forward.logits[:, -1].clone())

    attached.decoder.edit = silent
    with attached:
        cache = None if family == "instructblip" else DynamicCache(config=model.config.get_text_config())
        output = model.generate(
            **inputs, **options, **({"past_key_values": cache} if cache is not None else {})
        )
    for ours, theirs in zip(seen, base.logits, strict=True):
        torch.testing.assert_close(ours.float(), theirs, atol=1e-5, rtol=1e-5)
    assert output.past_key_values.get_seq_length() == inputs["input_ids"].shape[1] + 3


def test_a_text_only_branch_does_not_inherit_rotary_offsets(loaded, batch, answer):
    """Without its own offsets the branch would be wrong from its second step, and spoil the main pass's."""
    model, processor = loaded("qwen2_5_vl")
    inputs = batch("qwen2_5_vl")
    with reweigh.decoder("m3id", model, processor, decay=0.5):
        model.generate(**inputs, max_new_tokens=3, do_sample=False)
        inside = model.model.rope_deltas.clone()
    model.generate(**inputs, max_new_tokens=3, do_sample=False)
    assert torch.equal(inside, model.model.rope_deltas)
    assert bool((inside != 0).any())


def test_pre_encoded_features_never_reach_a_branch(loaded, batch):
    model, processor = loaded("llava")
    attached = reweigh.decoder("vcd", model, processor)
    inputs = spy(attached.decoder, [])
    given = batch("llava")
    with attached:
        model.generate(**given, max_new_tokens=2, do_sample=False)
    assert "mm_encoder_outputs" not in inputs
    assert not torch.allclose(inputs["pixel_values"], given["pixel_values"])
    features = model.model.get_image_features(given["pixel_values"], return_dict=True)
    del given["pixel_values"]
    with attached, pytest.raises(UnsupportedError, match="pixel_values"):
        model.generate(**given, mm_encoder_outputs={"image": features}, max_new_tokens=2, do_sample=False)


def test_without_a_cache_beams_are_read_again(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava")
    options = {"max_new_tokens": 5, "num_beams": 3, "do_sample": False}
    with reweigh.decoder("vcd", model, processor):
        cached = model.generate(**inputs, **options)
        uncached = model.generate(**inputs, **options, use_cache=False)
    assert torch.equal(cached, uncached)


def test_a_cropped_main_cache_crops_the_branch(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    cache = DynamicCache()
    attached = reweigh.decoder("vcd", model, processor)
    with attached, torch.no_grad():
        model(**inputs, past_key_values=cache, use_cache=True)
        words = torch.tensor([[11, 12, 13]])
        first = model(input_ids=words, past_key_values=cache, use_cache=True).logits
        cache.crop(-2)
        again = model(input_ids=words[:, 1:], past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(first[:, 1:], again, atol=1e-5, rtol=1e-5)
        (branch,) = branches(cache)
        assert branch.cache.get_seq_length() == cache.get_seq_length()
        cache.crop(-(cache.get_seq_length() - inputs["input_ids"].shape[1] + 1))
        with pytest.raises(UnsupportedError, match="cropped"):
            model(input_ids=words, past_key_values=cache, use_cache=True)


def test_a_copied_cache_has_a_branch_of_its_own(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    cache = DynamicCache()
    with reweigh.decoder("vcd", model, processor), torch.no_grad():
        model(**inputs, past_key_values=cache, use_cache=True)
        twin = copy.deepcopy(cache)
        one = model(input_ids=torch.tensor([[20]]), past_key_values=cache, use_cache=True).logits
        model(input_ids=torch.tensor([[30]]), past_key_values=twin, use_cache=True)
        other = model(input_ids=torch.tensor([[31]]), past_key_values=twin, use_cache=True).logits
        assert not torch.equal(one, other)
    (ours,), (theirs,) = branches(cache), branches(twin)
    assert ours is not theirs
    assert theirs.cache.get_seq_length() == ours.cache.get_seq_length() + 1


def test_a_second_turn_continues_the_branch(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    options = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "eos_token_id": None}
    more = torch.tensor([[40, 41, 42]])
    with reweigh.decoder("vcd", model, processor):
        first = model.generate(**inputs, **options)
        whole = torch.cat([first.sequences, more], dim=1)
        mask = torch.ones_like(whole)
        kept = model.generate(
            input_ids=whole, attention_mask=mask, past_key_values=first.past_key_values, **options
        )
        fresh = model.generate(**{**inputs, "input_ids": whole, "attention_mask": mask}, **options)
    assert torch.equal(kept.sequences, fresh.sequences)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
@pytest.mark.parametrize("method", ["vcd", "icd"])
def test_a_second_turn_may_be_padded(method, family, loaded, batch):
    model, processor = loaded(family)
    options = {"max_new_tokens": 3, "do_sample": False, "return_dict_in_generate": True, "eos_token_id": None}

    def talk(rows, more, seen):
        inputs = batch(family, rows=rows)
        with reweigh.decoder(method, model, processor):
            first = model.generate(**inputs, **options)
            said = torch.ones(len(rows), options["max_new_tokens"], dtype=torch.int64)
            return model.generate(
                input_ids=torch.cat([first.sequences, torch.tensor(more)], dim=1),
                attention_mask=torch.cat([inputs["attention_mask"], said, torch.tensor(seen)], dim=1),
                past_key_values=first.past_key_values,
                output_logits=True,
                **options,
            ).logits

    both = talk((0, 1), [[40, 41, 42, 43], [0, 0, 44, 45]], [[1, 1, 1, 1], [0, 0, 1, 1]])
    alone = talk((1,), [[44, 45]], [[1, 1]])
    for together, own in zip(both, alone, strict=True):
        torch.testing.assert_close(together[1], own[0], atol=1e-4, rtol=0)


def test_a_prompt_read_in_chunks_starts_the_branch_once(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    image = (inputs["input_ids"][0] == model.config.image_token_id).nonzero().max().item() + 1
    cache, whole = DynamicCache(), DynamicCache()
    attached = reweigh.decoder("pai", model, processor, alpha=0.0, gamma=2.0)
    with attached, torch.no_grad():
        model(**inputs, past_key_values=whole, use_cache=True)
        wanted = model(input_ids=torch.tensor([[20]]), past_key_values=whole, use_cache=True).logits
    make = attached.decoder.branch_inputs
    attached.decoder.branch_inputs = lambda prompt: make(dataclasses.replace(prompt, inputs=inputs))
    edit = attached.decoder.edit

    def whole(prompt):
        return dataclasses.replace(prompt, start=0, end=max(prompt.end, inputs["input_ids"].shape[1]))

    attached.decoder.edit = lambda forward: edit(dataclasses.replace(forward, prompt=whole(forward.prompt)))
    with attached, torch.no_grad():
        part = {"input_ids": inputs["input_ids"][:, :image], "pixel_values": inputs["pixel_values"]}
        model(**part, past_key_values=cache, use_cache=True)
        assert not branches(cache)
        model(input_ids=inputs["input_ids"][:, image:], past_key_values=cache, use_cache=True)
        found = model(input_ids=torch.tensor([[20]]), past_key_values=cache, use_cache=True).logits
    assert len(branches(cache)) == 1
    torch.testing.assert_close(found[:, -1].softmax(-1), wanted[:, -1].softmax(-1), atol=1e-5, rtol=1e-4)


def test_rows_may_be_contrasted_with_weights_of_their_own(loaded, batch):
    class Uneven(VCD):
        def rule(self, main, reference, forward):
            weights = torch.tensor([[[0.0]], [[1.5]]])
            return contrasted(main, reference, weights, self.beta, log_space=False)

    model, processor = loaded("llava")
    inputs = batch("llava")
    options = {
        "max_new_tokens": 1,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    made = {}
    for name, kind, more in (
        ("uneven", Uneven, {}),
        ("none", VCD, {"alpha": 0.0}),
        ("all", VCD, {"alpha": 1.5}),
    ):
        with tie(kind(find_anatomy(model), processor, **more)):
            made[name] = model.generate(**inputs, **options).logits[0]
    assert torch.equal(made["uneven"][0], made["none"][0])
    assert torch.equal(made["uneven"][1], made["all"][1])
    assert not torch.equal(made["none"][1], made["all"][1])
