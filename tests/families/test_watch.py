"""A model that changes after it was identified is noticed, whichever way it changes."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import stand_ins
import twin
from reweigh.families.identity import Watch


@pytest.fixture
def model(checkpoint):
    return copy.deepcopy(twin.case(checkpoint("llava")).model)


def in_place(model):
    with torch.no_grad():
        model.lm_head.weight[7, 3] += 1e-3


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


CHANGES = [in_place, data_replaced, parameter_replaced, loaded, assigned, converted, optimised]


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
    assert "lm_head" in watch.changed()


def test_the_whole_model_converted(model):
    watch = Watch(model)
    model.to(torch.bfloat16)
    assert watch.changed() is not None


def test_every_parameter_is_watched(model):
    watch = Watch(model)
    for name, parameter in model.named_parameters():
        kept = parameter.data.clone()
        with torch.no_grad():
            parameter.add_(1.0)
        assert watch.changed().startswith(name)
        with torch.no_grad():
            parameter.copy_(kept)
        watch = Watch(model)


def test_adapters_are_watched(model):
    watch = Watch(model)
    layers = stand_ins.inject(model)
    assert "model.language_model.layers.0.self_attn" in watch.changed()
    layers[2].add("other", seed=3)
    watch = Watch(stand_ins.PeftModel(model, stand_ins.config()))
    assert watch.changed() is None
    layers[2].set_adapter("other")
    assert "adapters of model.language_model.layers.2.self_attn.q_proj" in watch.changed()
    layers[2].set_adapter("default")
    assert watch.changed() is None
    layers[1].scaling["default"] = 4.0
    assert "layers.1" in watch.changed()
    layers[1].scaling["default"] = 2.0
    layers[0]._disable_adapters = True
    assert "layers.0" in watch.changed()
    layers[0]._disable_adapters = False
    layers[0].merge()
    assert watch.changed() is not None


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
    with torch.no_grad():
        model.turned[1, 1] += 1
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
