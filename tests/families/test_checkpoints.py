"""The random checkpoints of the six families behave as released ones do."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import AutoProcessor
from transformers.utils import is_torchvision_available

from checkpoints import BLOCKS, FAMILIES, VOCABULARY, build, load, picture, prompt
from reweigh.errors import UnsupportedError
from reweigh.families.processor import load_processor

pytestmark = pytest.mark.parametrize("family", FAMILIES)
WITH_VIDEO = ("qwen2_5_vl", "internvl")


def test_processor_expands_the_placeholder_and_the_model_generates(family, checkpoint):
    model, processor = load(checkpoint(family))
    inputs = processor(images=picture(1, (70, 50)), text=prompt(processor), return_tensors="pt")
    assert (inputs["input_ids"] == model.config.image_token_id).sum() >= 8
    with torch.no_grad():
        logits = model(**inputs).logits
        output = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert logits.shape == (*inputs["input_ids"].shape, VOCABULARY)
    assert logits.std() > 1
    assert output.shape[1] > inputs["input_ids"].shape[1]
    assert model.config.get_text_config().num_hidden_layers == BLOCKS


def test_the_picture_reaches_the_answer(family, checkpoint):
    model, processor = load(checkpoint(family))
    first, second = (
        processor(images=picture(seed, (56, 56)), text=prompt(processor), return_tensors="pt")
        for seed in (1, 2)
    )
    with torch.no_grad():
        assert not torch.allclose(model(**first).logits[:, -1], model(**second).logits[:, -1], atol=1e-3)


def test_no_parameter_is_left_at_its_neutral_value(family, checkpoint):
    model, _ = load(checkpoint(family))
    for name, parameter in model.named_parameters():
        flat = parameter.detach().flatten()
        assert flat.numel() == 1 or flat.std() > 1e-3, name


def test_two_builds_have_the_same_bytes(family, checkpoint, tmp_path):
    again = build(family, tmp_path / family)
    for file in ("model.safetensors", "config.json", "tokenizer.json", "processor_config.json"):
        assert (again / file).read_bytes() == (checkpoint(family) / file).read_bytes(), file


def test_bare_variant_has_no_chat_template(family, checkpoint):
    _, processor = load(checkpoint(family, bare=True))
    assert processor.chat_template is None
    assert (family == "instructblip") == (load(checkpoint(family))[1].chat_template is None)


def test_auto_processor_is_what_load_processor_gives(family, checkpoint):
    path = checkpoint(family)
    declared = json.loads((path / "processor_config.json").read_text())["processor_class"]
    assert type(load_processor(path)).__name__ == declared
    if family in WITH_VIDEO and not is_torchvision_available():
        with pytest.raises(ImportError, match="Torchvision"):
            AutoProcessor.from_pretrained(path)
    else:
        assert type(AutoProcessor.from_pretrained(path)) is type(load_processor(path))


def test_videos_are_refused_by_name_where_the_part_is_missing(family, checkpoint):
    if family not in WITH_VIDEO or is_torchvision_available():
        pytest.skip("the processor has no video part, or torchvision is here")
    processor = load_processor(checkpoint(family))
    with pytest.raises(UnsupportedError, match="torchvision"):
        processor(text="a video", videos=[[picture(0)]])
