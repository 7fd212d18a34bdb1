"""The edited ``generate`` against an independent loop, and against the base model where nothing may change."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.method.edit import StepEditor
from sameness import assert_same

pytestmark = pytest.mark.numerics

BETA = 4.0
STEPS = 8
MIXED = [family for family in FAMILIES if family != "instructblip"]  # it cannot be fed without a picture
EVERY = {"do_sample": False, "return_dict_in_generate": True, "output_logits": True}


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case, beta=BETA, **options):
    return reweigh.attach(case.model, table=twin.table(VOCABULARY, **options), beta=beta)


def generate(case, inputs, steps=STEPS, **options):
    with torch.no_grad():
        return case.model.generate(**inputs, **{**EVERY, "max_new_tokens": steps, **options})


def new_tokens(output, inputs):
    return output.sequences[:, inputs["input_ids"].shape[1] :]


@pytest.mark.parametrize(
    ("family", "layer"),
    [(family, 2) for family in FAMILIES]
    + [("llava", 0), ("instructblip", 3)]
    + [
        pytest.param(family, layer, marks=pytest.mark.slow)
        for family in ("llava_next", "qwen2_5_vl", "internvl", "gemma3")
        for layer in (0, 1, 3)
    ],
)
def test_greedy_equals_the_twin(case, layer):
    inputs = case.inputs()
    references = twin.table(VOCABULARY, layer=layer)
    tokens, logits = twin.greedy(case.model, inputs, references, BETA, STEPS)
    with reweigh.attach(case.model, table=references, beta=BETA):
        output = generate(case, inputs)
    assert new_tokens(output, inputs)[0].tolist() == tokens
    for mine, theirs in zip(output.logits, logits, strict=True):
        np.testing.assert_allclose(mine[0].numpy(), theirs, atol=2e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_edit_is_seen_bounded_and_only_suppresses(case):
    inputs = case.inputs()
    base = generate(case, inputs)
    with attach(case, beta=8.0):
        edited = generate(case, inputs)
    if case.family != "internvl":  # its random head is too sure of itself
        assert not torch.equal(base.sequences, edited.sequences)
    shift = base.logits[0] - edited.logits[0]  # the first step sees the same prefix
    assert shift.max() > 0.5
    assert shift.min() >= 0
    assert shift.max() <= 8.0 + 1e-5
    assert (shift > 0).sum() <= 50


@pytest.mark.parametrize("family", FAMILIES)
def test_beta_zero_is_the_base_model_bit_for_bit(case):
    inputs = case.inputs([1, 2], ["Please describe this image in detail.", "What is it?"])
    base = generate(case, inputs)
    with attach(case, beta=0.0):
        assert_same(base, generate(case, inputs))


@pytest.mark.parametrize("family", MIXED)
def test_a_batch_without_image_is_the_base_model_bit_for_bit(case):
    inputs = case.inputs([None, None], ["Is there a clock on the wall?", "What?"])
    base = generate(case, inputs)
    with attach(case):
        assert_same(base, generate(case, inputs))


@pytest.mark.parametrize("family", MIXED)
def test_text_rows_of_a_mixed_batch_are_the_base_model_bit_for_bit(case):
    inputs = case.inputs([1, None, 2], ["What is in the image?", "Is there a clock?", "Describe."])
    base = generate(case, inputs)
    with attach(case):
        edited = generate(case, inputs)
    for before, after in zip(base.logits, edited.logits, strict=False):
        assert torch.equal(before[1], after[1])
    assert not torch.equal(base.logits[0][0], edited.logits[0][0])
    assert not torch.equal(base.logits[0][2], edited.logits[0][2])


@pytest.mark.parametrize("family", ["llava"])
def test_nothing_happens_to_a_row_without_evidence(case, monkeypatch):
    """Its logits are not even looked at: what the base model goes on with, a NaN too, is left to it."""
    inputs = case.inputs([1, None, 2], ["What is in the image?", "Is there a clock?", "Describe."])
    seen = []

    plain = StepEditor.step

    def watched(self, logits):
        seen.append(self.rows.tolist())
        return plain(self, logits)

    monkeypatch.setattr(StepEditor, "step", watched)

    def spoil(_module, _args, output):
        output.logits[1, :, 5] = float("nan")
        return output

    with attach(case):
        clean = generate(case, inputs)
    assert seen == [[0, 2]] * len(clean.logits)
    with attach(case):
        spoiled = case.model.register_forward_hook(spoil, prepend=True)
        try:
            output = generate(case, inputs)
        finally:
            spoiled.remove()
    assert output.logits[0][1, 5].isnan()
    for before, after in zip(clean.logits, output.logits, strict=True):
        assert torch.equal(before[[0, 2]], after[[0, 2]])


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_a_batch_equal_rows_alone(case):
    seeds, texts = [1, None, 3], ["Please describe this image in detail.", "What is it?", "In the picture"]
    if case.family == "instructblip":  # its Q-Former gives another image when the question is padded
        seeds, texts = [1, 2, 3], ["What is it?"] * 3
    batch = case.inputs(seeds, texts)
    with attach(case):
        together = generate(case, batch)
        for row, (seed, text) in enumerate(zip(seeds, texts, strict=True)):
            inputs = case.inputs([seed], [text])
            alone = generate(case, inputs)
            length = len(alone.logits)
            assert new_tokens(together, batch)[row, :length].tolist() == new_tokens(alone, inputs)[0].tolist()
            for mine, theirs in zip(together.logits, alone.logits, strict=False):
                torch.testing.assert_close(mine[row], theirs[0], atol=3e-4, rtol=0)


@pytest.mark.parametrize("family", MIXED)
def test_several_images_in_one_row_equal_the_twin(case):
    inputs = case.inputs([(1, 2)], ["What is in the images?"])
    references = twin.table(VOCABULARY)
    tokens, logits = twin.greedy(case.model, inputs, references, BETA, STEPS)
    with reweigh.attach(case.model, table=references, beta=BETA):
        output = generate(case, inputs)
    assert new_tokens(output, inputs)[0].tolist() == tokens
    np.testing.assert_allclose(output.logits[0][0].numpy(), logits[0], atol=2e-4)


@pytest.mark.parametrize("family", MIXED)
def test_rows_with_different_numbers_of_images(case):
    inputs = case.inputs([(1, 2), None, 3], ["What are they?", "What is it?", "A"])
    rows = twin.strengths_of(case.model, inputs, twin.table(VOCABULARY))
    with twin.hand_edited(case.model, rows, BETA):
        expected = generate(case, inputs)
    with attach(case):
        output = generate(case, inputs)
    assert torch.equal(output.sequences, expected.sequences)


@pytest.mark.parametrize("family", FAMILIES)
def test_describe_equals_generate(case, checkpoint):
    from checkpoints import picture

    rw = reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY), beta=BETA)
    with rw:
        output = generate(case, case.inputs([4], size=(56, 56)))
    inputs = case.inputs([4], size=(56, 56))
    words = case.processor.batch_decode(new_tokens(output, inputs), skip_special_tokens=True)[0].strip()
    assert rw.describe(picture(4), max_new_tokens=STEPS) == words
    assert rw.describe([picture(4), picture(5)], max_new_tokens=STEPS)[0] == words


@pytest.mark.parametrize("family", ["llava"])
def test_rw_generate_is_the_same_as_the_context(case):
    inputs = case.inputs()
    rw = attach(case)
    with rw:
        inside = generate(case, inputs)
    assert_same(inside, rw.generate(**inputs, **EVERY, max_new_tokens=STEPS))


@pytest.mark.parametrize("family", ["llava", "gemma3"])
def test_a_plain_forward_edits_the_columns_after_the_image(case):
    inputs = case.inputs([1], ["What is it?"])
    [strength] = twin.strengths_of(case.model, inputs, twin.table(VOCABULARY))
    with torch.no_grad():
        base = case.model(**inputs).logits
        with attach(case):
            logits = case.model(**inputs).logits
    last = int((inputs["input_ids"][0] == case.model.config.image_token_id).nonzero().max())
    assert torch.equal(logits[0, :last], base[0, :last])
    for column in range(last, base.shape[1]):
        expected = twin.edited(base[0, column].numpy(), strength, BETA)
        np.testing.assert_allclose(logits[0, column].numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_a_plain_forward_that_records_gradients(case):
    """Nobody needs the gradient, but forgetting no_grad must not fail."""
    inputs = case.inputs()
    with attach(case):
        logits = case.model(**inputs).logits
        with torch.no_grad():
            expected = case.model(**inputs).logits
    assert logits.requires_grad
    torch.testing.assert_close(logits.detach(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_are_edited_in_float32(checkpoint, family, dtype):
    from checkpoints import load

    model, processor = load(checkpoint(family))
    model = model.to(dtype)
    case = twin.Case(family, model, processor)
    inputs = case.inputs()
    inputs["pixel_values"] = inputs["pixel_values"].to(dtype)
    references = twin.table(VOCABULARY)
    [strength] = twin.strengths_of(model, inputs, references)
    base = generate(case, inputs, steps=1).logits[0][0]
    with reweigh.attach(model, table=references, beta=BETA):
        after = generate(case, inputs, steps=1).logits[0][0]
    assert after.dtype == torch.float32
    expected = base.numpy().copy()
    for token in twin.candidates(base.numpy()):
        expected[token] = base[token].numpy() - np.float32(strength[token]) * np.float32(BETA)
    np.testing.assert_allclose(after.numpy(), expected, rtol=1e-6, atol=2e-6)
    rounded = torch.from_numpy(expected).to(dtype).float().numpy()
    assert np.abs(rounded - expected).max() > 1e-3  # the model's own type could not hold the edit


@pytest.mark.parametrize("family", ["qwen2_5_vl"])
def test_calibrate_then_attach_end_to_end(case):
    from checkpoints import picture
    from reweigh.calibration.result import tables_of

    pictures = [picture(seed) for seed in range(4)]
    made = reweigh.calibrate(case.model, case.processor, pictures, layers=[1, 2], max_new_tokens=6)
    table = tables_of(made.observations, made.about, rule="count-1")[2]
    rw = reweigh.attach(case.model, case.processor, table=table, beta=BETA)
    inputs = case.inputs([0], size=(56, 56))
    tokens, _ = twin.greedy(case.model, inputs, table, BETA, 6)
    with rw:
        assert new_tokens(generate(case, inputs, steps=6), inputs)[0].tolist() == tokens
