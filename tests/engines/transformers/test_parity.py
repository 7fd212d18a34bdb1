"""Parity tells a rightly wired model from a wrongly wired one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import twin
from checkpoints import FAMILIES, load
from checkpoints.more import more
from reweigh.doctor.model import LensParity, lens_parity
from reweigh.errors import InputError

pytestmark = pytest.mark.numerics


@pytest.fixture
def own(checkpoint):
    """A LLaVA that a test may sabotage, and its inputs."""
    case = twin.Case("llava", *load(checkpoint("llava")))
    return case.model, case.inputs()


def without_norm(model):
    """The model speaks from the un-normed stream although it has a norm."""
    decoder, seen = twin.parts(model)[0], []
    decoder.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))

    def replaced(_module, _args, output):
        output.last_hidden_state = seen.pop()
        return output

    decoder.register_forward_hook(replaced)


def other_head(model):
    """What the model calls its output embedding is not what it speaks with."""
    head = nn.Linear(48, 400, bias=False)
    model.get_output_embeddings = lambda: head


@pytest.mark.parametrize("family", FAMILIES)
def test_the_six_agree_exactly(family, checkpoint):
    case = twin.case(checkpoint(family))
    inputs = case.inputs()
    found = lens_parity(case.model, inputs)
    states = twin.hidden_states(case.model, inputs)
    assert found.positions == len(twin.visual_columns(case.model, inputs, states)[0])
    assert found.max_difference < 1e-4
    assert found.disagreement < 1e-6
    assert found.rank_agreement > 0.99
    assert found.between_blocks == ()
    assert found.holds()


@pytest.mark.parametrize("sabotage", [without_norm, other_head])
def test_a_sabotaged_model_is_found_out(own, sabotage):
    model, inputs = own
    assert lens_parity(model, inputs).holds()
    sabotage(model)
    found = lens_parity(model, inputs)
    assert not found.holds()
    assert not found.holds(0.05)
    assert found.rank_agreement < 0.9


def test_a_monotone_output_is_not_a_sabotage(own):
    model, inputs = own
    model.register_forward_hook(
        lambda _m, _a, output: setattr(output, "logits", 30 * torch.tanh(output.logits / 30))
    )
    found = lens_parity(model, inputs)
    assert found.holds()
    assert found.max_difference > 0.01


def test_what_is_added_between_blocks_is_named():
    model, inputs = more("qwen3_vl")
    found = lens_parity(model, inputs)
    assert found.between_blocks == (0, 1, 2)
    assert found.holds()


def test_half_precision_needs_a_wider_tolerance(own):
    model, inputs = own
    model.to(torch.bfloat16)
    inputs["pixel_values"] = inputs["pixel_values"].to(torch.bfloat16)
    assert lens_parity(model, inputs).holds(0.02)


def test_inputs_without_image(checkpoint):
    case = twin.case(checkpoint("llava"))
    with pytest.raises(InputError, match="no image"):
        lens_parity(case.model, case.inputs([None], ["Hello"]))


def test_not_a_number_never_holds():
    assert not LensParity(1, 0.0, float("nan"), 1.0, ()).holds(1.0)
