"""Signatures: float copies of one tensor always agree, and what rounding does not explain never does."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.families.weights import sample
from reweigh.tables.identity import BYTES, agree, kind_and_shape, sign

HALVES = (torch.bfloat16, torch.float16)


def signed(tensor):
    return sign(sample(tensor, BYTES), tuple(tensor.shape))


@st.composite
def tensors(draw):
    """Normal values of any scale that float16 can hold, some of them zero."""
    shape = draw(st.lists(st.integers(1, 40), max_size=3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    values = torch.randn(shape, generator=random) * 10.0 ** draw(st.floats(-9, 3))
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return torch.where(torch.rand(values.shape, generator=random) < share, 0.0, values)


def loaded(checkpoint):
    """A checkpoint as it can be loaded."""
    return [checkpoint.to(dtype) for dtype in (torch.float32, *HALVES)]


@settings(max_examples=300)
@given(values=tensors(), stored=st.sampled_from([torch.float32, *HALVES]))
def test_one_checkpoint_agrees_however_it_is_loaded(values, stored):
    for one, other in itertools.product(loaded(values.to(stored)), repeat=2):
        assert agree(signed(one), signed(other))


@settings(max_examples=300)
@given(values=tensors())
def test_copies_saved_in_another_type_agree_with_the_original(values):
    copies = [values, *(values.to(dtype).float() for dtype in HALVES), values.bfloat16().half()]
    for one in copies:
        for other in loaded(values):
            assert agree(signed(one), signed(other))


@settings(max_examples=300)
@given(values=tensors(), share=st.floats(0.01, 1), seed=st.integers(0, 2**32))
def test_noise_of_a_hundredth_is_seen_between_any_two_types(values, share, seed):
    """Half a unit of bfloat16 is at most 1/256 of a value: a fine-tune that moves values by more is told."""
    random = torch.Generator().manual_seed(seed)
    sign_of = torch.where(torch.rand(values.shape, generator=random) < 0.5, -1.0, 1.0)
    other = values * (1 + sign_of * (0.01 + share))
    checked = sample(values, BYTES // 4)
    if not (checked.abs() > 1e-4).any():
        return
    for one, two in itertools.product(loaded(values), loaded(other)):
        assert not agree(signed(one), signed(two))


@settings(max_examples=300)
@given(values=tensors(), dtype=st.sampled_from([torch.float32, *HALVES]))
def test_the_smallest_change_is_seen_in_the_same_type(values, dtype):
    one = values.to(dtype)
    bits = one.view(torch.int32 if dtype == torch.float32 else torch.int16)
    other = torch.where(one == 0, one, (bits + 1).view(dtype))  # one step away from zero
    kinds = {kind_and_shape(signed(tensor))[0] for tensor in (one, other)}
    checked = sample(one, BYTES)
    if len(kinds) > 1 or (checked[checked != 0].abs() <= 2.0**-14).any() or not sample(one, 8).any():
        return  # few numbers may lie on a coarser grid by chance, and very small ones are rounded more by float16
    assert not agree(signed(one), signed(other))


def test_a_change_below_rounding_shows_as_soon_as_both_sides_hold_it():
    values = torch.linspace(0.1, 0.9, 64)
    near = values * (1 + 1e-5)
    assert not agree(signed(values), signed(near))
    assert agree(signed(values.bfloat16()), signed(near.bfloat16()))


def test_what_cannot_be_a_copy():
    ones = torch.ones(4, 4)
    assert not agree(signed(ones), signed(torch.ones(16)))
    assert not agree(signed(ones), signed(torch.ones(4, 4, dtype=torch.int8)))
    assert not agree(signed(ones), signed(torch.full((4, 4), float("nan"))))
    assert not agree(signed(ones * 1e5), signed((ones * 1e5).half()))  # float16 makes it infinite
    assert agree(signed(ones * float("nan")), signed((ones * float("nan")).half()))
    packed = torch.arange(64, dtype=torch.uint8)
    assert agree(signed(packed), signed(packed.clone()))
    assert not agree(signed(packed), signed(packed + 1))


def test_its_face():
    assert kind_and_shape(signed(torch.ones(300, 70))) == ("bfloat16", "300x70")
    assert kind_and_shape(signed(torch.tensor(0.1))) == ("float32", "scalar")
    assert kind_and_shape(signed(torch.full((3,), 0.1).half())) == ("float16", "3")
    assert len(signed(torch.randn(4096, 11008).half())) < 70


@pytest.mark.parametrize("shape", [(), (1,), (2,), (8,), (31,), (64, 64), (3, 5, 7), (4096, 4096)])
def test_samples_spread_and_ignore_strides(shape):
    values = torch.arange(torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
    drawn = sample(values, 32)
    assert len(drawn) == min(32, values.numel())
    if len(shape) == 2:
        assert len({int(at) % shape[1] for at in drawn}) > 24, "columns vary, too"
        turned = values.t().contiguous().t()
        assert not turned.is_contiguous()
        assert torch.equal(sample(turned, 32), drawn)
    if values.numel() <= 32:
        assert sorted(drawn.tolist()) == values.flatten().tolist(), "small tensors are taken whole"
