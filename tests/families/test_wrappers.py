"""Wrapped models: torch.compile and peft come off, or the reason is named before anything runs."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import stand_ins
import twin
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import find_anatomy


@pytest.fixture
def model(checkpoint):
    return copy.deepcopy(twin.case(checkpoint("llava")).model)


def test_a_compiled_model_is_unwrapped(model):
    found = find_anatomy(torch.compile(model, backend="eager"))
    assert found.model is model
    assert found.compiled
    assert not find_anatomy(model).compiled
    assert found.language_model is model
    assert found.head is model.lm_head


@pytest.mark.parametrize("twice", [False, True])
def test_a_peft_model_is_unwrapped_whichever_wrapper_is_outside(model, twice):
    wrapped = stand_ins.PeftModel(model, stand_ins.config())
    assert find_anatomy(wrapped).model is model
    assert find_anatomy(wrapped.base_model).model is model
    if twice:
        assert find_anatomy(torch.compile(wrapped, backend="eager")).model is model


def test_generate_of_the_wrapper_runs_the_model_inside(model, checkpoint):
    """What hooks on the inner model see is what the wrapper generates."""
    wrapped = stand_ins.PeftModel(model, stand_ins.config())
    seen = []
    find_anatomy(wrapped).blocks[0].register_forward_hook(lambda *_: seen.append(1))
    inputs = twin.case(checkpoint("llava")).inputs([1])
    wrapped.generate(**inputs, max_new_tokens=2, do_sample=False)
    assert len(seen) == 2


@pytest.mark.parametrize(("kind", "learning"), [("PREFIX_TUNING", True), ("XLORA", False)])
def test_peft_that_acts_outside_the_layers_is_refused(model, kind, learning):
    wrapped = stand_ins.PeftModel(model, stand_ins.config(kind, is_prompt_learning=learning))
    with pytest.raises(UnsupportedError, match=f"{kind}") as caught:
        find_anatomy(wrapped)
    assert "merge" in caught.value.hint


def test_an_empty_peft_wrapper_is_refused():
    wrapped = stand_ins.PeftModel(nn.Linear(1, 1), stand_ins.config())
    del wrapped.base_model
    wrapped.__dict__["peft_config"] = {}
    with pytest.raises(UnsupportedError, match="base_model"):
        find_anatomy(wrapped)


@pytest.mark.parametrize("where", ["head", "all"])
def test_a_dynamically_quantised_model(model, where):
    quantised = stand_ins.quantised(model, head_only=where == "head")
    found = find_anatomy(quantised)
    assert not isinstance(found.head.weight, torch.Tensor)
    assert found.vocab_size == find_anatomy(model).vocab_size
    assert found.model is quantised


def test_what_is_not_a_module_has_no_config():
    with pytest.raises(UnsupportedError, match="config"):
        find_anatomy(SimpleNamespace())
