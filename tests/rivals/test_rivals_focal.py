"""Fields, pairs and survivors equal their definitions; focal contrast equals fresh passes over crops. Never called HALC."""

from __future__ import annotations

import functools
import gc
import itertools
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import generating
import reweigh
from checkpoints import FAMILIES, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import build_inputs, encode
from reweigh.rivals.halc.fields import CENTRE, contrasts, divergences, fields, focal, survivors
from reweigh.rivals.tools.pictures import crop, with_pictures
from sameness import assert_same

STEPS = 3
run = functools.partial(generating.run, steps=STEPS)
PICTURES = {0: picture(1, (70, 50)), 1: picture(2, (56, 56)), 2: picture(3, (56, 56))}


def test_fields_shrink_and_grow_about_the_centre_and_stop_at_the_edges():
    found = fields(CENTRE)
    wanted = [(0.38, 0.38, 0.62, 0.62), CENTRE, (0.02, 0.02, 0.98, 0.98), (0.0, 0.0, 1.0, 1.0)]
    np.testing.assert_allclose(found, wanted, atol=1e-12)
    corner = fields((0.0, 0.5, 0.2, 1.0), growth=1.0)
    # each grows from the one before as it was cut off, and none shrinks by more than 0.8
    wanted = [(0.08, 0.7, 0.12, 0.8), (0.0, 0.5, 0.2, 1.0), (0.0, 0.25, 0.3, 1.0), (0.0, 0.0, 0.45, 1.0)]
    np.testing.assert_allclose(corner, wanted, atol=1e-12)
    with pytest.raises(InputError, match="box"):
        fields((0.5, 0.5, 0.5, 0.9))


def divergence_twin(one, other):
    p, q = (np.exp(row - row.max()) / np.exp(row - row.max()).sum() for row in (one, other))
    middle = (p + q) / 2
    return 0.5 * sum(
        m * (2 * np.log(m) - np.log(a) - np.log(b)) for m, a, b in zip(middle, p, q, strict=True)
    )


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_contrasts_are_the_written_out_ones(seed, pairs):
    logits = np.random.default_rng(seed).normal(size=(4, 9)) * 3
    apart = {(i, j): divergence_twin(logits[i], logits[j]) for i, j in itertools.combinations(range(4), 2)}
    found = divergences(torch.tensor(logits))
    for (i, j), value in apart.items():
        assert float(found[i, j]) == pytest.approx(value, abs=1e-5)
    best = sorted(apart, key=lambda pair: -apart[pair])[:pairs]
    wanted = [row for i, j in best for row in (logits[j] - 0.05 * logits[i], logits[i] - 0.05 * logits[j])]
    np.testing.assert_allclose(contrasts(torch.tensor(logits), pairs).numpy(), wanted, atol=1e-5)


def test_what_is_below_the_floor_stays_there_for_later_pairs():
    logits = torch.tensor([[0.0, 1.0, -2000.0], [4.0, 0.0, 5.0]])
    first, second = contrasts(logits, 1)
    assert first.tolist() == pytest.approx([4.0, -0.05 * 1.0, 5.0 + 0.05 * 2000.0])
    assert second[2] == -2000.0 + 0.05 * 1000.0  # the second number became -1000
    assert logits[1, 2] == 5.0  # the caller's own numbers are left alone
    with pytest.raises(InputError, match="2 pairs"):
        contrasts(logits, 2)


def test_the_main_pass_decides_between_the_two_contrasts():
    views = torch.tensor([[9.0, 0.0, 0.0], [0.0, 9.0, 0.0], [8.9, 0.0, 0.0]])
    assert int(focal(torch.tensor([1.0, 2.0, 0.0]), views).argmax()) == 1
    assert int(focal(torch.tensor([2.0, 1.0, 0.0]), views).argmax()) == 0


def test_survivors_are_the_best_texts_without_repeats():
    texts = ["a", "b", "a", "c"]
    assert survivors([0.4, 0.9, 0.5, 0.1], texts, 2) == [1, 2]
    assert survivors([0.5, 0.5, 0.5, 0.5], texts, 4) == [3, 2, 1, 3]  # the best one fills up
    assert survivors([0.1], ["a"], 3) == [0, 0, 0]


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
    rows = [(row, ids[row][mask[row].bool()].tolist()) for row in (0, 1)]
    made = with_pictures(find_anatomy(model), processor, inputs, rows, [new, old])
    wanted = build_inputs(model, processor, [new, old], texts)
    assert made.keys() == wanted.keys()
    for row in (0, 1):  # padding may be another token, at another place
        assert unpadded(made, row) == unpadded(wanted, row)
    for name, value in wanted.items():
        if name not in ("input_ids", "attention_mask", "mm_token_type_ids", "token_type_ids"):
            assert torch.equal(value, made[name]), name


def unpadded(inputs, row):
    """Each number that belongs to a token of a row."""
    seen = inputs["attention_mask"][row].bool()
    names = ("input_ids", "mm_token_type_ids", "token_type_ids")
    return {name: inputs[name][row][seen].tolist() for name in names if name in inputs}


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_equal_fresh_passes_over_crops(family, loaded, batch, answer):
    model, processor = loaded(family)
    inputs = batch(family, rows=(0,))
    session = reweigh.decoder("focal", model, processor, weight=0.3)
    with session.request(pictures=[PICTURES[0]]):
        found = run(model, inputs)
    ids = inputs["input_ids"][0].tolist()
    views = [
        with_pictures(find_anatomy(model), processor, inputs, [(0, ids)], [crop(PICTURES[0], box)])
        for box in fields(CENTRE)
    ]
    for step, logits in enumerate(found.logits):
        tokens = found.sequences[:, inputs["input_ids"].shape[1] :][:, :step]
        seen = torch.cat([answer(model, view, tokens) for view in views])
        main = answer(model, inputs, tokens)[0]
        torch.testing.assert_close(logits[0], focal(main, seen, 0.3), atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_null_setting_and_batches(family, loaded, batch):
    model, processor = loaded(family)
    rows = (0, 2) if family == "instructblip" else (0, 1)
    inputs = batch(family, rows=rows)
    base = run(model, inputs)
    with reweigh.decoder("focal", model, processor, count=0):
        assert_same(base, run(model, inputs))
    session = reweigh.decoder("focal", model, processor)
    with session.request(pictures=[PICTURES[row] for row in rows]):
        both = run(model, inputs)
        assert run(model, inputs, num_beams=2).sequences.shape[0] == 2
    for place, row in enumerate(rows):
        with session.request(pictures=[PICTURES[row]]):
            alone = run(model, batch(family, rows=(row,)))
        assert torch.equal(both.sequences[place, -STEPS:], alone.sequences[0, -STEPS:])
    assert not torch.equal(base.logits[0], both.logits[0])


def test_pictures_are_told_from_pixels_or_asked_for(loaded, batch):
    model, processor = loaded("llava")
    inputs = build_inputs(model, processor, [picture(1), None], ["What is it?", "Tell me a story."])
    base = run(model, inputs)
    with reweigh.decoder("focal", model, processor):
        ours = run(model, inputs)
    assert not torch.equal(base.logits[0][0], ours.logits[0][0])
    assert torch.equal(base.logits[0][1], ours.logits[0][1])
    model, processor = loaded("qwen2_5_vl")
    session = reweigh.decoder("focal", model, processor)
    with session, pytest.raises(UnsupportedError, match="request"):
        run(model, batch("qwen2_5_vl"))
    with session.request(pictures=[picture(1)]), pytest.raises(InputError, match="1 pictures"):
        run(model, batch("qwen2_5_vl"))
    assert isinstance(session.describe(picture(1), max_new_tokens=2), str)
    with pytest.raises(InputError, match="field"):
        reweigh.decoder("focal", model, processor, count=1)
    with pytest.raises(InputError, match="processor"):
        reweigh.decoder("focal", model)


@pytest.mark.parametrize("method", ["focal", "halc"])
def test_a_prompt_of_several_images_is_refused(method, loaded):
    """One picture's parts would take the place of both, and of the words between them."""
    model, processor = loaded("llava")
    text = "USER: <image>\nand <image>\nwhat? ASSISTANT:"
    inputs = encode(model, processor, [text], [[picture(1), picture(2)]])
    asked = {"detect": lambda image, word: [], "match": lambda image, texts: [0.0] * len(texts)}
    session = reweigh.decoder(method, model, processor, **(asked if method == "halc" else {}))
    with (
        session.request(pictures=[picture(1)]),
        pytest.raises(UnsupportedError, match="several images"),
    ):
        model.generate(**inputs, max_new_tokens=1, do_sample=False)


def test_it_is_not_called_halc():
    from reweigh.rivals import DECODERS

    title = DECODERS["focal"].title
    assert title.startswith("Focal contrast")
    assert "no detector, no matcher" in title


def test_a_finished_generation_is_released(loaded, batch):
    model, processor = loaded("llava")
    alive = []
    with reweigh.decoder("focal", model, processor) as attached:
        edit = attached.decoder.edit

        def noted(forward):
            result = edit(forward)
            alive.extend(weakref.ref(one) for one in forward.trail.branches.values())
            return result

        attached.decoder.edit = noted
        model.generate(**batch("llava"), max_new_tokens=2, do_sample=False)
        gc.collect()
        assert len(alive) == 8
        assert all(one() is None for one in alive)
