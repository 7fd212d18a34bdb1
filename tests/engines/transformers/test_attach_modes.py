"""Every way of calling ``generate``: the same call on a model whose forward is edited by hand gives the same output."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import CompileConfig, GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.stopping_criteria import MaxLengthCriteria, StoppingCriteriaList

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.engines.rows import Batch
from reweigh.engines.transformers.arguments import past_length

pytestmark = pytest.mark.numerics

BETA = 4.0
STEPS = 6
FEW = [
    "llava",
    "instructblip",
    pytest.param("qwen2_5_vl", marks=pytest.mark.slow),
    pytest.param("gemma3", marks=pytest.mark.slow),
]
# a draft after InstructBLIP's embedded prompt is verified at the wrong columns by transformers itself
ASSISTED = [family for family in FAMILIES if family != "instructblip"]
TEXTS = ["What is in the image?", "Describe."]


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case, beta=BETA):
    return reweigh.attach(case.model, table=twin.table(VOCABULARY), beta=beta)


def generate(case, inputs, **options):
    torch.manual_seed(7)
    kept = {"max_new_tokens": STEPS, "return_dict_in_generate": True, "output_logits": True}
    with torch.no_grad():
        return case.model.generate(**inputs, **{**kept, **options})


def both(case, inputs, **options):
    """The attached run and the run of a hand-edited model."""
    rows = twin.strengths_of(case.model, inputs, twin.table(VOCABULARY))
    with twin.hand_edited(case.model, rows, BETA):
        expected = generate(case, inputs, **options)
    with attach(case):
        output = generate(case, inputs, **options)
    return output, expected


def agree(output, expected):
    assert torch.equal(output.sequences, expected.sequences)
    for mine, theirs in zip(output.logits, expected.logits, strict=True):
        torch.testing.assert_close(mine, theirs, atol=2e-4, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_beam_search(case):
    inputs = case.inputs([1, 2], TEXTS)
    output, expected = both(
        case, inputs, num_beams=3, do_sample=False, num_return_sequences=2, output_scores=True
    )
    agree(output, expected)
    torch.testing.assert_close(output.sequences_scores, expected.sequences_scores, atol=1e-4, rtol=0)
    base = generate(case, inputs, num_beams=3, do_sample=False, num_return_sequences=2, output_scores=True)
    assert (output.sequences_scores - base.sequences_scores).abs().min() > 0.01


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "instructblip"])
def test_beams_of_a_batch_with_text_rows(case):
    inputs = case.inputs([None, 2], TEXTS)
    agree(*both(case, inputs, num_beams=2, do_sample=False))


@pytest.mark.parametrize("family", FAMILIES)
def test_sampling_draws_from_the_edited_logits(case):
    inputs = case.inputs([1, 2], TEXTS)
    output, expected = both(case, inputs, do_sample=True, top_k=0, top_p=1.0, temperature=1.0)
    agree(output, expected)
    torch.manual_seed(7)
    done = torch.zeros(2, dtype=torch.bool)
    for step, logits in enumerate(output.logits):
        drawn = torch.multinomial(torch.softmax(logits, dim=-1), 1)[:, 0]
        chosen = output.sequences[:, inputs["input_ids"].shape[1] + step]
        assert torch.equal(drawn[~done], chosen[~done])
        done |= chosen == case.model.generation_config.eos_token_id


@pytest.mark.parametrize("family", FEW)
@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_return_sequences": 3, "top_p": 0.8, "temperature": 1.3},
        {"do_sample": True, "num_beams": 2, "num_return_sequences": 2},
        {"do_sample": False, "use_cache": False},
        {"do_sample": False, "cache_implementation": "static"},
        {"do_sample": False, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
        {"do_sample": False, "min_new_tokens": STEPS, "bad_words_ids": [[300]]},
    ],
    ids=["return-sequences", "beam-sampling", "no-cache", "static-cache", "penalties", "constraints"],
)
def test_other_modes(case, options):
    agree(*both(case, case.inputs([1, 2], TEXTS), **options))


@pytest.mark.parametrize("family", ["llava"])
def test_the_edit_acts_before_the_repetition_penalty(case):
    inputs = case.inputs()
    base = generate(case, inputs, do_sample=False, max_new_tokens=1).logits[0][0]
    [strength] = twin.strengths_of(case.model, inputs, twin.table(VOCABULARY))
    edited = twin.edited(base.numpy(), strength, BETA)
    prompt = set(inputs["input_ids"][0].tolist())
    assert prompt & set(
        np.flatnonzero(np.abs(edited - base.numpy()) > 1e-3).tolist()
    )  # both act on some token
    expected = edited.copy()
    for token in prompt:
        expected[token] = edited[token] / 1.7 if edited[token] > 0 else edited[token] * 1.7
    with attach(case):
        output = generate(
            case, inputs, do_sample=False, max_new_tokens=1, repetition_penalty=1.7, output_scores=True
        )
    np.testing.assert_allclose(output.scores[0][0].numpy(), expected, atol=1e-4)
    np.testing.assert_allclose(output.logits[0][0].numpy(), edited, atol=1e-4)


@pytest.mark.parametrize("family", ASSISTED)
def test_prompt_lookup_gives_the_unassisted_output(case):
    inputs = case.inputs([1], ["Describe."])
    begun = case.processor.tokenizer("a small cat, a small dog and a small", add_special_tokens=False)
    for token in begun["input_ids"]:  # the draft is looked up here, not among image placeholders
        inputs = twin.extended(inputs, token)
    with attach(case):
        alone = generate(case, inputs, do_sample=False, max_new_tokens=12)
        assisted = generate(case, inputs, do_sample=False, max_new_tokens=12, prompt_lookup_num_tokens=3)
    assert torch.equal(alone.sequences, assisted.sequences)
    for mine, theirs in zip(assisted.logits, alone.logits, strict=True):
        torch.testing.assert_close(mine, theirs, atol=3e-4, rtol=0)


@pytest.mark.parametrize("family", ASSISTED)
@pytest.mark.parametrize("other", [False, True], ids=["copy", "other"])
def test_an_assistant_model_does_not_change_the_output(case, other):
    assistant = copy.deepcopy(case.model)
    if other:
        with torch.no_grad():
            twin.parts(assistant)[1].weight[::3] += 0.05
    inputs = case.inputs()
    with attach(case):
        alone = generate(case, inputs, do_sample=False, max_new_tokens=10)
        assisted = generate(case, inputs, do_sample=False, max_new_tokens=10, assistant_model=assistant)
    assert torch.equal(alone.sequences, assisted.sequences)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl"])
def test_a_model_may_assist_itself(case):
    inputs = case.inputs()
    with attach(case):
        alone = generate(case, inputs, do_sample=False, max_new_tokens=10)
        assisted = generate(case, inputs, do_sample=False, max_new_tokens=10, assistant_model=case.model)
    assert torch.equal(alone.sequences, assisted.sequences)


@pytest.mark.parametrize("family", ["llava"])
def test_classifier_free_guidance_edits_the_branch_with_the_image_only(case):
    """The guidance processor runs a second, image-free branch inside the same generate."""
    inputs = case.inputs()
    agree_sequences = []
    rows = twin.strengths_of(case.model, inputs, twin.table(VOCABULARY))
    for _ in range(2):
        with attach(case):
            output = generate(case, inputs, do_sample=False, guidance_scale=1.5)
        agree_sequences.append(output.sequences)
    assert torch.equal(*agree_sequences)
    base = generate(case, inputs, do_sample=False, max_new_tokens=1).logits[0][0].numpy()
    np.testing.assert_allclose(output.logits[0][0].numpy(), twin.edited(base, rows[0], BETA), atol=2e-4)
    tokens = output.sequences[:, : inputs["input_ids"].shape[1] + 3]
    longer = inputs
    for token in tokens[0, inputs["input_ids"].shape[1] :].tolist():
        longer = twin.extended(longer, token)
    with torch.no_grad():
        raw = case.model(**longer).logits[0, -1].numpy()
    np.testing.assert_allclose(output.logits[3][0].numpy(), twin.edited(raw, rows[0], BETA), atol=2e-4)


class Spy(LogitsProcessor):
    def __init__(self):
        self.seen = []

    def __call__(self, input_ids, scores):
        self.seen.append(scores.clone())
        return scores


@pytest.mark.parametrize("family", ["llava", "instructblip"])
def test_nothing_about_the_users_call_changes(case):
    inputs = case.inputs()
    before = {name: value.clone() for name, value in inputs.items()}
    config = GenerationConfig(max_new_tokens=3, do_sample=False, pad_token_id=3, repetition_penalty=1.2)
    told = config.to_dict()
    spy = Spy()
    processors = LogitsProcessorList([spy])
    criteria = StoppingCriteriaList([MaxLengthCriteria(10_000)])
    with attach(case), torch.no_grad():
        output = case.model.generate(
            **inputs,
            generation_config=config,
            logits_processor=processors,
            stopping_criteria=criteria,
            return_dict_in_generate=True,
            output_logits=True,
        )
    assert config.to_dict() == told
    assert list(processors) == [spy]
    assert len(criteria) == 1
    assert len(spy.seen) == len(output.logits)
    assert inputs.keys() == before.keys()
    assert all(torch.equal(inputs[name], before[name]) for name in inputs)
    base = generate(case, inputs, do_sample=False, max_new_tokens=1).logits[0]
    assert not torch.equal(output.logits[0], base)


@pytest.mark.parametrize("family", FAMILIES)
def test_positional_ids_and_inputs_are_understood(case):
    """Ids may come as ``inputs`` or by position; InstructBLIP's first position is the picture."""
    inputs = case.inputs()
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    with attach(case), torch.no_grad():
        expected = generate(case, inputs, do_sample=False).sequences
        if case.family == "instructblip":
            picture = rest.pop("pixel_values")
            found = case.model.generate(
                picture, **rest, input_ids=inputs["input_ids"], do_sample=False, max_new_tokens=STEPS
            )
        else:
            found = case.model.generate(inputs["input_ids"], **rest, do_sample=False, max_new_tokens=STEPS)
            named = case.model.generate(
                inputs=inputs["input_ids"], **rest, do_sample=False, max_new_tokens=STEPS
            )
            assert torch.equal(named, expected)
    assert torch.equal(found, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("family", ["llava"])
def test_a_compiled_forward_is_edited_alike(case):
    """Static caches compile the forward on accelerators; the hooks must not be traced into the graph."""
    compiled = CompileConfig(backend="eager", fullgraph=False, mode=None, dynamic=False)
    compiled._compile_all_devices = True
    inputs = case.inputs()
    options = {"do_sample": False, "max_new_tokens": 4, "cache_implementation": "static"}
    try:
        with attach(case):
            plain = generate(case, inputs, **options)
            agree(generate(case, inputs, **options, compile_config=compiled), plain)
    finally:  # other tests share the model, and hooks stay on one that is compiled
        vars(case.model).pop("_compiled_call", None)
    assert not torch.equal(plain.logits[0], generate(case, inputs, **options).logits[0])


@pytest.mark.parametrize("family", ["llava"])
def test_a_cache_that_counts_on_its_device_is_not_waited_for(case, monkeypatch):
    """A static cache's length is a tensor there; only the first pass may ask for its value."""
    asked = []
    monkeypatch.setattr(
        "reweigh.engines.transformers.forward_hooks.past_length",
        lambda cache, known=None: asked.append((cache, known)) or past_length(cache, known),
    )
    inputs = case.inputs()
    with attach(case):
        generate(case, inputs, do_sample=False, max_new_tokens=4, cache_implementation="static")
    assert [known for cache, known in asked if cache is not None] == [None]


def test_the_length_of_a_cache():
    assert past_length(None) == 0
    whole, on_device = (SimpleNamespace(get_seq_length=lambda n=n: n) for n in (5, torch.tensor(5)))
    own, other = Batch(1, [], seen=7), Batch(1, [], seen=8)
    for cache in (whole, on_device):
        vars(cache)["_reweigh_batch"] = own
        assert past_length(cache) == past_length(cache, other) == 5
    assert past_length(whole, own) == 5
    assert past_length(on_device, own) == 7
