"""Settings that shape evidence, as they stand: every change shows, and nothing else does."""

from __future__ import annotations

import copy
import functools
import itertools
from enum import Enum
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import twin
from reweigh.families.settings import model_settings, quick_settings


def settings(model, processor=None):
    return quick_settings(model.config, processor)


@pytest.fixture
def model(checkpoint):
    return copy.deepcopy(twin.case(checkpoint("llava")).model)


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
def test_a_setting_of_the_image_processor_changed_in_place_shows(model, checkpoint, name):
    images = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    before = settings(model, images)
    setattr(images.image_processor, name, IMAGE_SETTINGS[name])
    assert settings(model, images) != before


def test_settings_changed_inside_their_holders_show(model, checkpoint):
    processor = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    processor.image_processor.image_mean = [0.5, 0.5, 0.5]
    model.config.grid = [[1, 2], [3, 4]]
    seen = [settings(model, processor)]
    processor.image_processor.image_mean[1] = 0.25
    seen.append(settings(model, processor))
    model.config.grid[1][0] = 5
    seen.append(settings(model, processor))
    processor.patch_size = 14
    seen.append(settings(model, processor))
    processor.image_processor = type("Other", (), {})()
    seen.append(settings(model, processor))
    assert all(one != other for one, other in itertools.pairwise(seen))


class Crop(Enum):
    CENTER = 1
    NONE = 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Crop.CENTER, Crop.NONE),
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
def test_settings_of_any_kind_show(model, checkpoint, before, after):
    images = copy.deepcopy(twin.case(checkpoint("llava")).processor)
    for holder in (model.config, images.image_processor):
        holder.odd = before
        seen = settings(model, images)
        assert settings(model, images) == seen
        holder.odd = after
        assert settings(model, images) != seen


def test_a_tensor_among_the_settings_that_is_written_to_is_noticed(model):
    model.config.odd = torch.zeros(3)
    before = settings(model)
    model.config.odd[1] = 5.0
    assert settings(model) != before


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
def test_a_setting_of_the_configuration_changed_in_place_shows(checkpoint, family, path, value):
    model = copy.deepcopy(twin.case(checkpoint(family)).model)
    before = settings(model)
    change(model.config, path, value)
    now = settings(model)
    assert {name for name in now if now[name] != before.get(name)} == {f"the configuration's {path}"}


def test_settings_that_shape_nothing_may_change(model):
    before = settings(model)
    model.config.text_config.use_cache = False
    model.config.text_config.pad_token_id = 3
    model.config._name_or_path = "elsewhere"
    model.generation_config.max_length = 99
    assert settings(model) == before
