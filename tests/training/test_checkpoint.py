"""The shipped folder: size, names, what loads it, that its record is the recipe of the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from reweigh.files.artifacts import read_json
from reweigh.world import path
from reweigh.world.scenes import scene
from tools.training.checkpoint import build, released_name, save_checkpoint
from tools.training.model import Shape
from tools.training.recipe import RECIPE, record, until
from tools.training.speaking import PROMPT, load, presence, reply
from tools.training.stages import pixels


@pytest.fixture(scope="module")
def embedded() -> tuple[Any, Any]:
    return load()


def test_the_folder_is_small_and_in_half_precision() -> None:
    assert sum(file.stat().st_size for file in path().iterdir()) <= 12_000_000
    with safe_open(path() / "model.safetensors", "pt") as tensors:
        assert {tensors.get_tensor(k).dtype for k in tensors.keys()} == {torch.float16}  # noqa: SIM118
        names = set(tensors.keys())
    assert "language_model.model.layers.0.self_attn.q_proj.weight" in names
    assert "vision_tower.vision_model.encoder.layers.0.mlp.fc1.weight" in names
    assert "multi_modal_projector.linear_1.weight" in names


def test_every_weight_is_loaded_and_the_head_is_tied() -> None:
    from transformers import AutoModelForImageTextToText

    model, told = AutoModelForImageTextToText.from_pretrained(path(), output_loading_info=True)
    assert not any(told.values())
    assert model.lm_head.weight.data_ptr() == model.model.language_model.embed_tokens.weight.data_ptr()
    config = model.config.text_config
    assert config.hidden_size // config.num_attention_heads in (32, 64)


def test_the_record_beside_the_weights_is_the_recipe() -> None:
    import json

    assert read_json(path() / "training.json") == json.loads(json.dumps(record(RECIPE)))


def test_reloading_gives_the_same_bits(tmp_path: Path) -> None:
    shape = Shape(width=64, vision_blocks=1, vision_mlp=64, blocks=2, mlp=64, heads=2)
    torch.manual_seed(3)
    model = build(shape, path(), {}).half().float()
    save_checkpoint(model, path(), tmp_path, [])
    again, _ = load(tmp_path)
    ours, theirs = model.state_dict(), again.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[k], theirs[k]) for k in ours)


def test_the_processor_sees_what_training_saw(embedded: tuple[Any, Any]) -> None:
    made = scene("tuning", 3)
    inputs = embedded[1](images=made.image(), text="<image>", return_tensors="pt")
    torch.testing.assert_close(inputs["pixel_values"], pixels([made]))


def test_it_describes_in_sentences_and_answers_questions(embedded: tuple[Any, Any]) -> None:
    made = scene("tuning", 5)
    (text,) = reply(*embedded, [made.image()], [PROMPT], longest=110)
    assert made.kind in text
    assert text.endswith(".")
    assert len(text.split()) > 20
    assert presence(*embedded, [(made, "dog"), (made, "toilet")]) == [True, False]


@pytest.mark.parametrize("options", [{"num_beams": 3}, {"do_sample": True, "temperature": 0.7}])
def test_beams_and_sampling_work(embedded: tuple[Any, Any], options: dict[str, Any]) -> None:
    model, processor = embedded
    torch.manual_seed(0)
    inputs = processor(
        images=scene("tuning", 5).image(),
        text="<s>USER: <image>\nDescribe this image. ASSISTANT:",
        return_tensors="pt",
    )
    out = model.generate(**inputs, max_new_tokens=30, **({"do_sample": False} | options))
    assert "park" in processor.decode(out[0, inputs["input_ids"].shape[1] :])


def test_a_batch_says_what_each_alone_says(embedded: tuple[Any, Any]) -> None:
    images = [scene("tuning", i).image() for i in range(3)]
    prompts = [PROMPT, "Describe this image.", "Is there a dog in the image?"]
    together = reply(*embedded, images, prompts, longest=40)
    assert together == [
        reply(*embedded, [i], [p], longest=40)[0] for i, p in zip(images, prompts, strict=True)
    ]


def test_released_names() -> None:
    assert released_name("model.language_model.norm.weight") == "language_model.model.norm.weight"
    assert released_name("model.vision_tower.encoder.x") == "vision_tower.vision_model.encoder.x"


def test_stages_can_be_named() -> None:
    assert [s.plan.name for s in until("see")] == ["see"]
    assert until(None) == RECIPE
