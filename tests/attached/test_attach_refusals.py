"""What cannot be served is refused by name with the reason, never silently unedited."""

from __future__ import annotations

import functools
import math
from contextlib import nullcontext

import pytest
import torch
import transformers as hf
from packaging.version import Version
from torch import nn
from transformers import GenerationConfig

import reweigh
import twin
from checkpoints import VOCABULARY, load
from reweigh.errors import InputError, UnsupportedError

FAMILIES = ["llava", "instructblip"]


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


@pytest.fixture
def own(checkpoint):
    """A LLaVA that a test may alter."""
    return twin.Case("llava", *load(checkpoint("llava")))


def attach(case, **options):
    return reweigh.attach(case.model, table=twin.table(VOCABULARY), **{"beta": 4.0, **options})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "name", ["generate_batch", "init_continuous_batching", "continuous_batching_context_manager"]
)
def test_continuous_batching(case, name):
    with attach(case), pytest.raises(UnsupportedError, match=name):
        getattr(case.model, name)([[1, 2, 3]])
    assert name not in vars(case.model)
    assert name not in vars(twin.parts(case.model)[2])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_paged_cache(case):
    with attach(case), pytest.raises(UnsupportedError, match="generate_batch"):
        case.model.generate(**case.inputs(), max_new_tokens=2, cache_implementation="paged")


@pytest.mark.parametrize("family", FAMILIES)
def test_early_exit_wherever_it_is_set(case, monkeypatch):
    inputs = case.inputs()
    with attach(case):
        with pytest.raises(UnsupportedError, match="assistant_early_exit"):
            case.model.generate(**inputs, max_new_tokens=2, assistant_early_exit=1)
        with pytest.raises(UnsupportedError, match="skip"):
            case.model.generate(**inputs, generation_config=GenerationConfig(assistant_early_exit=1))
        speaker = twin.parts(case.model)[2]
        monkeypatch.setattr(speaker.generation_config, "assistant_early_exit", 1)
        with pytest.raises(UnsupportedError, match="assistant_early_exit"):
            case.model.generate(**inputs, max_new_tokens=2)


@pytest.mark.parametrize("family", ["llava"])
def test_embeddings_without_ids(case):
    inputs = case.inputs()
    embeds = case.model.get_input_embeddings()(inputs["input_ids"]).detach()
    with attach(case), torch.no_grad():
        with pytest.raises(UnsupportedError, match="input_ids") as caught:
            case.model.generate(inputs_embeds=embeds, max_new_tokens=2)
        assert "input_ids" in caught.value.hint
        with pytest.raises(UnsupportedError, match="input_ids"):
            case.model(inputs_embeds=embeds)


@pytest.mark.parametrize("family", FAMILIES)
def test_pixels_without_ids(case):
    """InstructBLIP would make up ids of its own."""
    inputs = case.inputs()
    del inputs["input_ids"], inputs["attention_mask"]
    with attach(case), pytest.raises(UnsupportedError, match="input_ids"):
        case.model.generate(**inputs, max_new_tokens=2)


@pytest.mark.parametrize("family", ["llava"])
def test_finished_embeddings_beside_their_ids_are_served(case):
    inputs = case.inputs()
    merged = twin.hidden_states(case.model, inputs)[0]
    with attach(case), torch.no_grad():
        expected = case.model.generate(**inputs, max_new_tokens=4, do_sample=False)
        given = {"input_ids": inputs["input_ids"], "attention_mask": inputs["attention_mask"]}
        found = case.model.generate(**given, inputs_embeds=merged, max_new_tokens=4, do_sample=False)
    assert torch.equal(found[:, -4:], expected[:, -4:])


CHUNKS = {"max_new_tokens": 4, "do_sample": False, "prefill_chunk_size": 8}
KEEPS = Version(hf.__version__) >= Version("5.23")
"""Whether transformers keeps an image that it prefills in chunks."""


@pytest.mark.skipif(KEEPS, reason="this transformers keeps the image")
@pytest.mark.parametrize(
    "family", ["llava", "llava_next", "qwen2_5_vl", "internvl", "gemma3", "instructblip"]
)
def test_chunked_prefill_of_an_image_that_transformers_loses(case):
    with attach(case), pytest.raises(UnsupportedError, match="chunks") as caught:
        case.model.generate(**case.inputs(), **CHUNKS)
    assert "prefill_chunk_size" in caught.value.hint


@pytest.mark.skipif(not KEEPS, reason="this transformers loses the image")
@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl", "internvl"])
def test_chunked_prefill_of_an_image_is_read_and_edited_as_a_whole_one(case):
    inputs = case.inputs([1, 2], ["What is in the image?", "Is it a dog?"])
    options = {**CHUNKS, "return_dict_in_generate": True, "output_logits": True}
    edited, found = [], []
    for size in (None, CHUNKS["prefill_chunk_size"]):
        with attach(case).using() as request:
            made = case.model.generate(**inputs, **{**options, "prefill_chunk_size": size})
        edited.append(made.logits[0])
        found.append(torch.stack([one.values for one in request.evidence]))
    assert torch.allclose(*edited, atol=1e-4)
    assert torch.allclose(*found, atol=1e-5)  # a rank may flip by rounding
    base = case.model.generate(**inputs, **options).logits[0]
    assert (edited[1] - base).abs().amax(1).tolist() == pytest.approx([4.0, 4.0], abs=1e-4)


@pytest.mark.skipif(not KEEPS, reason="this transformers loses the image")
@pytest.mark.parametrize("family", ["instructblip"])
def test_chunked_prefill_of_an_image_that_transformers_refuses(case):
    for context in (nullcontext(), attach(case)):
        with context, pytest.raises(RuntimeError, match="size of tensor"):
            case.model.generate(**case.inputs(), **CHUNKS)


@pytest.mark.parametrize("family", ["llava"])
def test_an_image_that_generate_does_not_hand_on(case, monkeypatch):
    prepare = case.model.prepare_inputs_for_generation

    @functools.wraps(prepare)
    def without_image(*args, **given):
        return {**prepare(*args, **given), "pixel_values": None, "mm_encoder_outputs": None}

    monkeypatch.setattr(case.model, "prepare_inputs_for_generation", without_image)
    with attach(case), pytest.raises(UnsupportedError, match="hand the image on"):
        case.model.generate(**case.inputs(), max_new_tokens=1)


@pytest.mark.parametrize("family", ["llava", "qwen2_5_vl", "gemma3"])
def test_chunked_prefill_of_text_is_the_base_model(case):
    inputs = case.inputs([None, None], ["Is there a clock on the wall of the kitchen?", "What is it?"])
    options = {"max_new_tokens": 4, "do_sample": False, "prefill_chunk_size": 4}
    options |= {"return_dict_in_generate": True, "output_logits": True}
    base = case.model.generate(**inputs, **options)
    with attach(case):
        edited = case.model.generate(**inputs, **options)
    assert all(torch.equal(one, two) for one, two in zip(base.logits, edited.logits, strict=True))


@pytest.mark.parametrize("family", ["llava", "gemma3"])
def test_placeholders_without_an_image(case):
    inputs = case.inputs()
    del inputs["pixel_values"]
    with attach(case), torch.no_grad():
        with pytest.raises(InputError, match="no image"):
            case.model.generate(**inputs, max_new_tokens=2)
        with pytest.raises(InputError, match="no image"):
            case.model(**inputs)
    with pytest.raises(InputError, match="no image"):
        reweigh.measure(case.model, inputs)


def test_a_generate_that_bypasses_the_forward(own):
    inputs = own.inputs()
    own.model.generate = lambda **_: torch.zeros(1, 3)
    with attach(own), pytest.raises(UnsupportedError, match="forward"):
        own.model.generate(**inputs)
    text = own.inputs([None], ["Hello"])
    with attach(own):
        assert own.model.generate(**text).shape == (1, 3)  # nothing would have been edited


class Wrapped(nn.Module):
    """Hands everything on to the model it holds, as adapters do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)

    def generate(self, *args, **kwargs):
        return self.inner.generate(*args, **kwargs)


def test_a_wrapper_whose_generate_is_that_of_the_inner_model(own):
    outer = twin.Case("llava", Wrapped(own.model), own.processor)
    with attach(outer), pytest.raises(UnsupportedError, match=r"Wrapped\.generate") as caught:
        outer.model.generate(**own.inputs(), max_new_tokens=2)
    assert "attach" in caught.value.hint


def test_outputs_without_names_and_picked_columns(own):
    inputs = own.inputs()
    with attach(own), torch.no_grad():
        with pytest.raises(UnsupportedError, match="named"):
            own.model(**inputs, return_dict=False)
        with pytest.raises(UnsupportedError, match="logits_to_keep"):
            own.model(**inputs, logits_to_keep=torch.tensor([3, 4]))


@pytest.mark.parametrize("layer", [4, -5, 100, True, 1.0, "2"])
def test_a_layer_out_of_range(own, layer):
    with pytest.raises(InputError, match="range"):
        attach(own, layer=layer)
    with pytest.raises(InputError, match="0 to 3"):
        reweigh.measure(own.model, own.inputs(), layers=[0, layer])


def test_a_table_of_a_layer_the_model_has_not(own):
    with pytest.raises(InputError, match="layer 9"):
        reweigh.attach(own.model, table=twin.table(VOCABULARY, layer=9))


@pytest.mark.parametrize("beta", [-0.1, math.nan, math.inf, -math.inf, True, "1"])
def test_an_impossible_beta(own, beta):
    with pytest.raises(InputError, match="finite"):
        attach(own, beta=beta)


def test_a_head_that_is_not_the_models_output_path(own):
    """The proof runs in the first prefill, before anything is edited."""
    plain = own.model.forward

    @functools.wraps(plain)
    def forward(*args, **kwargs):
        output = plain(*args, **kwargs)
        output.logits = output.logits.flip(-1)
        return output

    own.model.forward = forward
    with attach(own), pytest.raises(UnsupportedError, match="reproduce"):
        own.model.generate(**own.inputs(), max_new_tokens=2)


def test_logits_that_are_not_numbers(own):
    from reweigh.errors import NumericsError

    rw = attach(own)
    rw.generate(**own.inputs(), max_new_tokens=1)
    with torch.no_grad():
        own.model.lm_head.weight[7] = math.nan
    with pytest.raises((NumericsError, UnsupportedError), match=r"NaN|nan"):
        rw.generate(**own.inputs(), max_new_tokens=2)


def test_describe_without_a_processor(own):
    from checkpoints import picture

    own.model.config._name_or_path = own.model.name_or_path = ""  # a model built from a config
    with pytest.raises(InputError, match="processor"):
        attach(own).describe(picture(1))


def test_the_processor_beside_the_model_is_found(own):
    from checkpoints import picture

    found = attach(own)
    assert type(found.processor) is type(own.processor)
    given = reweigh.attach(own.model, own.processor, table=found.table, beta=found.beta)
    assert found.describe(picture(1), max_new_tokens=3) == given.describe(picture(1), max_new_tokens=3)
    assert type(reweigh.decoder("vcd", own.model).processor) is type(own.processor)


def test_an_instructblip_with_a_t5(checkpoint):
    config = hf.InstructBlipConfig(
        vision_config={"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1,
                       "image_size": 14, "patch_size": 7},
        qformer_config={"vocab_size": 10, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
                        "num_attention_heads": 1, "encoder_hidden_size": 8},
        text_config={"model_type": "t5", "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2,
                     "vocab_size": 10},
        num_query_tokens=2,
        image_token_index=9,
    )  # fmt: skip
    model = hf.InstructBlipForConditionalGeneration(config)
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        reweigh.attach(model, table=twin.table(10))


def test_a_model_that_is_none_of_transformers():
    with pytest.raises(UnsupportedError, match="Linear"):
        reweigh.attach(nn.Linear(2, 2), table=twin.table(10))
