"""A model that changes after it was identified is noticed, whichever way it changes."""

from __future__ import annotations

import copy
import functools
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import stand_ins
import twin
from reweigh.families import Watch
from reweigh.families.settings import model_settings


@pytest.fixture
def model(checkpoint):
    return copy.deepcopy(twin.case(checkpoint("llava")).model)


def in_place(model):
    with torch.no_grad():
        model.lm_head.weight[7, 3] += 1e-3


def through_data(model):
    model.lm_head.weight.data.mul_(1.001)


def data_replaced(model):
    model.lm_head.weight.data = model.lm_head.weight.data * 2


def parameter_replaced(model):
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())


def loaded(model):
    model.load_state_dict({"lm_head.weight": torch.zeros_like(model.lm_head.weight)}, strict=False)


def assigned(model):
    state = {"lm_head.weight": torch.zeros_like(model.lm_head.weight)}
    model.load_state_dict(state, strict=False, assign=True)


def converted(model):
    model.lm_head.to(torch.bfloat16)


def optimised(model):
    model.lm_head.weight.grad = torch.ones_like(model.lm_head.weight)
    torch.optim.SGD([model.lm_head.weight], lr=1e-4).step()


def replaced_layer(model):
    model.lm_head = copy.deepcopy(model.lm_head)


CHANGES = [in_place, through_data, data_replaced, parameter_replaced, loaded, assigned, converted, optimised]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_weight_is_named(model, change):
    watch = Watch(model)
    assert watch.changed() is None
    change(model)
    assert watch.changed().startswith("lm_head.weight")
    assert watch.changed() is not None, "it stays changed"
    assert Watch(model).changed() is None


def test_a_replaced_layer_is_named(model):
    watch = Watch(model)
    replaced_layer(model)
    assert "layers" in watch.changed()


def test_the_whole_model_converted(model):
    watch = Watch(model)
    model.to(torch.bfloat16)
    assert "bfloat16" in watch.changed()


def test_every_parameter_is_watched(model):
    watch = Watch(model)
    for name, parameter in model.named_parameters():
        kept = parameter.data.clone()
        parameter.data.add_(1.0)
        assert watch.changed().startswith(name)
        parameter.data.copy_(kept)
    assert watch.changed() is None


def test_adapters_are_watched(model):
    watch = Watch(model)
    layers = stand_ins.inject(model)
    assert "model.language_model.layers.0.self_attn" in watch.changed()
    layers[2].add("other", seed=3)
    watch = Watch(stand_ins.PeftModel(model, stand_ins.config()))
    assert watch.changed() is None
    layers[2].set_adapter("other")
    assert "adapters of model.language_model.layers.2.self_attn.q_proj" in watch.changed()
    assert "other (scale 2.0)" in watch.changed()
    layers[2].set_adapter("default")
    assert watch.changed() is None
    layers[1].scaling["default"] = 4.0
    assert "default (scale 4.0)" in watch.changed()
    layers[1].scaling["default"] = 2.0
    layers[0]._disable_adapters = True
    assert "none" in watch.changed()
    layers[0]._disable_adapters = False
    layers[0].merge()
    assert watch.changed() is not None


IMAGE_SETTINGS = {
    "size": {"shortest_edge": 56},
    "crop_size": {"height": 14, "width": 14},
    "do_resize": False,
    "do_center_crop": False,
    "do_normalize": False,
    "do_rescale": False,
    "image_mean": [0.1, 0.2, 0.3],
    "image_std": [1.0, 1.0, 1.0],
    "rescale_factor": 0.5,
    "resample": 0,
}


@pytest.mark.parametrize("name", IMAGE_SETTINGS)
def test_a_setting_of_the_image_processor_changed_in_place_is_named(model, checkpoint, name):
    images = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    watch = Watch(model, images)
    assert watch.changed() is None
    kept = getattr(images.image_processor, name)
    setattr(images.image_processor, name, IMAGE_SETTINGS[name])
    assert name in watch.changed()
    setattr(images.image_processor, name, kept)
    assert watch.changed() is None


def test_settings_changed_inside_their_holders_are_named(model, checkpoint):
    processor = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    processor.image_processor.image_mean = [0.5, 0.5, 0.5]
    model.config.grid = [[1, 2], [3, 4]]
    watch = Watch(model, processor)
    processor.image_processor.image_mean[1] = 0.25
    assert "image_mean" in watch.changed()
    assert "[0.5, 0.25, 0.5]" in watch.changed()
    watch = Watch(model, processor)
    model.config.grid[1][0] = 5
    assert "grid" in watch.changed()
    assert "[[1, 2], [5, 4]]" in watch.changed()
    watch = Watch(model, processor)
    processor.patch_size = 14
    assert "patch_size" in watch.changed()
    watch = Watch(model, processor)
    processor.image_processor = type("Other", (), {})()
    assert watch.changed() is not None


class Crop(Enum):
    CENTRE = 1
    NONE = 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Crop.CENTRE, Crop.NONE),
        (torch.float32, torch.bfloat16),
        (torch.zeros(2000), torch.zeros(2000).index_fill(0, torch.tensor([1000]), 1.0)),
        (torch.zeros(3).bfloat16(), torch.ones(3).bfloat16()),
        (np.zeros(2000), np.eye(1, 2000, 1000)[0]),
        (nn.ReLU, nn.GELU),
        (nn.functional.relu, nn.functional.gelu),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ],
    ids=["enum", "dtype", "tensor", "bfloat16", "array", "class", "function", "partial"],
)
def test_settings_of_any_kind_are_watched(model, checkpoint, before, after):
    images = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    for holder, name in ((model.config, "configuration"), (images.image_processor, "image processor")):
        holder.odd = before
        watch = Watch(model, images)
        assert watch.changed() is None
        holder.odd = after
        assert watch.changed().startswith(f"the {name}'s odd was changed: ")
        holder.odd = before


def test_a_tensor_among_the_settings_that_is_written_to_is_noticed(model):
    model.config.odd = torch.zeros(3)
    watch = Watch(model)
    model.config.odd[1] = 5.0
    assert "odd was changed" in watch.changed()


def test_an_identity_tells_long_arrays_apart():
    one, other = (
        SimpleNamespace(to_dict=lambda array=array: {"odd": array})
        for array in (np.zeros(2000), np.eye(1, 2000, 1000)[0])
    )
    assert model_settings(one) == model_settings(one)
    assert model_settings(one) != model_settings(other)


def change(holder, path, value):
    *outer, last = path.split(".")
    for name in outer:
        holder = getattr(holder, name)
    if isinstance(holder, dict):
        holder[last] = value
    else:
        setattr(holder, last, value)


@pytest.mark.parametrize(
    ("family", "path", "value"),
    [
        ("llava", "vision_feature_layer", -1),
        ("llava", "vision_feature_select_strategy", "full"),
        ("llava", "image_token_index", 9),
        ("llava", "vision_config.image_size", 56),
        ("llava", "text_config.rope_parameters.rope_theta", 5.0),
        ("llava", "text_config.rms_norm_eps", 0.1),
        ("gemma3", "text_config.final_logit_softcapping", 30.0),
        ("gemma3", "text_config.sliding_window", 2),
        ("qwen2_5_vl", "vision_config.spatial_merge_size", 1),
        ("llava_next", "image_grid_pinpoints", [[28, 28]]),
    ],
)
def test_a_setting_of_the_configuration_changed_in_place_is_named(checkpoint, family, path, value):
    model = copy.deepcopy(twin.case(checkpoint(family)).model)
    watch = Watch(model)
    assert watch.changed() is None
    change(model.config, path, value)
    assert watch.changed().startswith(f"the configuration's {path} was changed: ")
    assert watch.changed().endswith(f"now {value}")
    assert Watch(model).changed() is None


def test_settings_that_shape_nothing_may_change(model):
    watch = Watch(model)
    model.config.text_config.use_cache = False
    model.config.text_config.pad_token_id = 3
    model.config._name_or_path = "elsewhere"
    model.generation_config.max_length = 99
    assert watch.changed() is None


def test_running_the_model_changes_nothing(model, checkpoint):
    watch = Watch(model)
    inputs = twin.case(checkpoint("llava")).inputs([1])
    model.generate(**inputs, max_new_tokens=3, do_sample=False)
    with torch.inference_mode():
        model(**inputs)
    assert watch.changed() is None


def test_odd_tensors_are_watched_as_far_as_they_go():
    model = nn.Module()
    model.turned = nn.Parameter(torch.randn(6, 9).t())
    model.nothing = nn.Parameter(torch.zeros(0, 4))
    model.number = nn.Parameter(torch.tensor(float("nan")))
    model.register_buffer("spread", torch.zeros(1, 5).expand(3, 5))
    model.register_buffer("passing", torch.zeros(3), persistent=False)
    with torch.inference_mode():
        model.register_buffer("frozen", torch.ones(70))
    watch = Watch(model)
    assert watch.changed() is None
    model.passing = torch.ones(3)
    assert watch.changed() is None, "what is computed anew is no weight"
    model.turned.data[1, 1] += 1
    assert watch.changed().startswith("turned")


@pytest.mark.parametrize("quantity", ["all", "head"])
def test_quantised_layers_do_not_disturb(model, quantity):
    quantised = stand_ins.quantised(model, head_only=quantity == "head")
    assert Watch(quantised).changed() is None


def test_quantised_tensors_are_watched_by_their_version_alone():
    module = torch.nn.Linear(4, 4)
    module.register_buffer("packed", torch.quantize_per_tensor(torch.ones(8), 0.1, 0, torch.qint8))
    assert Watch(module).changed() is None


def test_a_watched_weight_can_still_be_resized():
    module = torch.nn.Linear(4, 4)
    watch = Watch(module)
    module.weight.data.untyped_storage().resize_(0)
    assert watch.changed() is not None
