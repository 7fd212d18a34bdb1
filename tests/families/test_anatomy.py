"""Where each family keeps its parts, and who is refused by name."""

from __future__ import annotations

import pytest
import torch
import transformers as hf
from torch import nn

from checkpoints import BLOCKS, FAMILIES, VOCABULARY, load
from checkpoints.more import IMAGE, more
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy, find_anatomy
from reweigh.families.catalogue import FAMILIES as RECORDS


def part(model, path):
    for name in path.split("."):
        model = getattr(model, name)
    return model


PATHS = {family: ("model.language_model", "lm_head", "") for family in FAMILIES}
PATHS["instructblip"] = ("language_model.model", "language_model.lm_head", "language_model")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_parts_of_the_six(family, checkpoint):
    model, _ = load(checkpoint(family))
    decoder, head, speaker = PATHS[family]
    found = find_anatomy(model)
    assert found.family.name == family
    assert found.blocks is part(model, f"{decoder}.layers")
    assert found.norm is part(model, f"{decoder}.norm")
    assert found.head is part(model, head)
    assert found.language_model is (part(model, speaker) if speaker else model)
    assert model.config.image_token_id in found.image_tokens
    assert len(found.blocks) == BLOCKS
    assert found.vocab_size == VOCABULARY
    assert found.config is model.config


@pytest.mark.parametrize(
    ("family", "blocks", "norm"),
    [
        ("blip-2", "language_model.model.decoder.layers", "language_model.model.decoder.final_layer_norm"),
        ("idefics3", "model.text_model.layers", "model.text_model.norm"),
        ("llama4", "language_model.model.layers", "language_model.model.norm"),
        ("fuyu", "model.language_model.layers", "model.language_model.final_layernorm"),
        ("lfm2_vl", "model.language_model.layers", "model.language_model.embedding_norm"),
    ],
)
def test_other_paths(family, blocks, norm):
    model, _ = more(family)
    found = find_anatomy(model)
    assert found.blocks is part(model, blocks)
    assert found.norm is part(model, norm)
    assert IMAGE in found.image_tokens


@pytest.fixture
def anatomy(checkpoint):
    return find_anatomy(load(checkpoint("llava"))[0])


@pytest.mark.parametrize(("given", "block"), [(0, 0), (3, 3), (-1, 3), (-4, 0)])
def test_layers_count_from_zero_or_from_the_end(anatomy, given, block):
    assert anatomy.check_layer(given) == block


@pytest.mark.parametrize("layer", [4, -5, True, False, 1.0, None, "1"])
def test_other_layers_are_refused(anatomy, layer):
    with pytest.raises(InputError, match="4 decoder") as caught:
        anatomy.check_layer(layer)
    assert "0 to 3" in caught.value.hint


def test_a_block_is_left_where_the_next_one_begins(anatomy):
    assert anatomy.exit_of(-1) is anatomy.blocks[0]
    assert anatomy.exit_of(0) is anatomy.blocks[1]
    assert anatomy.exit_of(2) is anatomy.blocks[3]
    assert anatomy.exit_of(3) is anatomy.norm


def test_a_packed_head_tells_its_width_by_name(anatomy):
    """Quantized layers keep their weight in another shape."""

    class Packed(nn.Module):
        out_features = 400

        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(9600, 1, dtype=torch.uint8), requires_grad=False)

    packed = Anatomy(
        anatomy.model,
        anatomy.family,
        anatomy.language_model,
        anatomy.blocks,
        anatomy.norm,
        Packed(),
        anatomy.image_tokens,
    )
    assert packed.vocab_size == 400


def named(name, config, **parts):
    """A stand-in of a class name with nothing but a configuration."""
    model = type(name, (nn.Module,), parts)()
    model.config = config
    return model


@pytest.mark.parametrize(
    ("name", "config", "reason"),
    [
        ("MllamaForConditionalGeneration", hf.MllamaConfig, "cross-attention"),
        ("IdeficsForVisionText2Text", hf.IdeficsConfig, "cross-attention"),
        ("Kosmos2ForConditionalGeneration", hf.Kosmos2Config, "separate mask"),
        ("Kosmos2_5ForConditionalGeneration", hf.Kosmos2_5Config, "separate mask"),
        ("ChameleonForConditionalGeneration", hf.ChameleonConfig, "image vocabulary"),
        ("GitForCausalLM", hf.GitConfig, "outside the token sequence"),
        ("Florence2ForConditionalGeneration", hf.Florence2Config, "encoder-decoder"),
        ("VisionEncoderDecoderModel", lambda: encoder_decoder(), "encoder-decoder"),
        ("Pix2StructForConditionalGeneration", hf.Pix2StructConfig, "encoder-decoder"),
    ],
)
def test_who_is_refused(name, config, reason):
    with pytest.raises(UnsupportedError, match=rf"(?s){name}.*{reason}"):
        find_anatomy(named(name, config()))


def encoder_decoder():
    return hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(hf.ViTConfig(), hf.GPT2Config())


def test_every_refused_name_is_a_family_of_transformers():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    refused = {name for name in RECORDS if RECORDS[name].refused}
    assert len(refused) == 11
    assert refused <= set(CONFIG_MAPPING_NAMES)


def test_a_model_without_head(checkpoint):
    model, _ = load(checkpoint("llava"))
    with pytest.raises(UnsupportedError, match="head") as caught:
        find_anatomy(model.model)
    assert "AutoModelForImageTextToText" in caught.value.hint


def test_a_model_without_image_token(checkpoint):
    model, _ = load(checkpoint("instructblip"))
    model.config.image_token_index = None  # as in checkpoints older than the processor's placeholder
    with pytest.raises(UnsupportedError, match="image token"):
        find_anatomy(model)


def test_a_text_model_names_no_image_token():
    config = hf.LlamaConfig(
        hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, vocab_size=9
    )
    with pytest.raises(UnsupportedError, match="image token"):
        find_anatomy(hf.LlamaForCausalLM(config))


def test_a_decoder_without_layers():
    head = nn.Linear(2, 2)
    model = named("Strange", hf.LlavaConfig(image_token_index=3), get_output_embeddings=lambda _self: head)
    with pytest.raises(UnsupportedError, match="Strange"):
        find_anatomy(model)
