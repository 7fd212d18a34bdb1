"""The stand-ins of other machines' rounding do what their options say."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import numerics
import twin

pytestmark = pytest.mark.numerics


@pytest.fixture
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("to", [0, 8, 40, 56])
def test_a_moved_tensor_has_its_values_at_another_offset(dtype, to):
    tensor = (torch.arange(15).view(3, 5) * 7).to(dtype)
    found = numerics.moved(tensor, to)
    assert numerics.offset(found) == to
    assert torch.equal(found, tensor)
    assert found.is_contiguous()


def test_an_offset_inside_an_element_is_refused():
    with pytest.raises(ValueError, match="multiple"):
        numerics.moved(torch.zeros(3), 6)


def test_moved_weights_stay_tied():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    numerics.move_weights(model, 40)
    assert model[1].weight is model[0].weight
    assert {numerics.offset(weight) for weight in model.parameters()} == {40}


def test_a_copy_has_the_offsets_and_so_the_bits_of_its_original(llava):
    plain = copy.deepcopy(llava.model)
    numerics.move_weights(plain, 40)
    inputs = llava.inputs()
    for original in (llava.model, plain):
        made = numerics.copied(original)
        pairs = list(zip(numerics.weights(original), numerics.weights(made), strict=True))
        assert all(numerics.offset(one) == numerics.offset(other) for one, other in pairs)
        assert all(one.data_ptr() != other.data_ptr() for one, other in pairs)
        with torch.no_grad():
            assert torch.equal(made(**inputs).logits, original(**inputs).logits)


def test_loaded_weights_are_moved(checkpoint, monkeypatch):
    from transformers import PreTrainedModel

    from checkpoints import load

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", PreTrainedModel.__dict__["from_pretrained"])
    numerics.move_loaded_weights(24)
    model, _ = load(checkpoint("llava"))
    assert {numerics.offset(weight) for weight in numerics.weights(model)} == {24}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causes", [{"address"}, {"rows"}, {"address", "rows"}])
def test_products_round_by_what_is_asked_for(monkeypatch, causes, dtype):
    random = torch.Generator().manual_seed(0)
    states = torch.randint(-3, 4, (6, 16), generator=random).to(dtype)  # no kernel rounds small integers
    weight = torch.randint(-3, 4, (300, 16), generator=random).to(dtype)
    one, other = numerics.moved(weight, 0), numerics.moved(weight, 40)
    exact = numerics.product(states, one)
    monkeypatch.setattr(nn.functional, "linear", nn.functional.linear)
    numerics.round_by(causes)
    linear = nn.functional.linear
    assert torch.equal(linear(states, one), linear(states, one))
    assert torch.equal(linear(states, one), linear(states, other)) == ("address" not in causes)
    assert torch.equal(linear(states, one)[:3], linear(states[:3], one)) == ("rows" not in causes)
    torch.testing.assert_close(linear(states, other), exact, rtol=2 * torch.finfo(dtype).eps, atol=0)
