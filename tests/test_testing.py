"""``assert_lens_parity`` passes where it should and fails where it must."""

from __future__ import annotations

import pytest
from torch import nn

import twin
from checkpoints import FAMILIES, load
from checkpoints.more import more
from reweigh.testing import LensParity, assert_lens_parity


@pytest.mark.parametrize("family", FAMILIES)
def test_the_six_pass(family, checkpoint):
    case = twin.case(checkpoint(family))
    assert isinstance(assert_lens_parity(case.model, case.inputs()), LensParity)


def test_a_wrong_head_fails(checkpoint):
    case = twin.Case("llava", *load(checkpoint("llava")))
    head = nn.Linear(48, 400, bias=False)
    case.model.get_output_embeddings = lambda: head
    with pytest.raises(AssertionError, match="LlavaForConditionalGeneration"):
        assert_lens_parity(case.model, case.inputs())
    assert_lens_parity(case.model, case.inputs(), tolerance=2.0)  # the caller may allow anything


def test_streams_changed_between_blocks_must_be_announced():
    model, inputs = more("qwen3_vl")
    for known in ((), (0, 1), (3,)):
        with pytest.raises(AssertionError, match="hidden_states"):
            assert_lens_parity(model, inputs, between_blocks=known)
    assert assert_lens_parity(model, inputs, between_blocks=(0, 1, 2)).between_blocks == (0, 1, 2)
    assert_lens_parity(model, inputs, between_blocks=(0, 1, 2, 3))
