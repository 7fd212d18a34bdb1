"""Weights are compared on bfloat16's grid: float copies of one tensor always agree, other values do not."""

from __future__ import annotations

import base64
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.families.identity import sampled
from reweigh.families.weights import sample
from reweigh.tables.key import agree, to_grid, weight_differences, weights_of
from reweigh.tables.schema2 import weights_now

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def same(one, other):
    return not weight_differences(*(weights_of({"w": sampled(side)}) for side in (one, other)), ("a", "b"))


@st.composite
def tensors(draw):
    """Normal values of any scale that float16 can hold, some of them zero."""
    shape = draw(st.lists(st.integers(1, 40), max_size=3))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    values = torch.randn(shape, generator=random) * 10.0 ** draw(st.floats(-9, 3))
    share = draw(st.sampled_from([0.0, 0.3, 1.0]))
    return torch.where(torch.rand(values.shape, generator=random) < share, 0.0, values)


@settings(max_examples=200)
@given(values=tensors())
def test_float_copies_of_one_checkpoint_agree(values):
    copies = [values.to(stored).to(loaded) for stored in FLOATS for loaded in FLOATS]
    for one, other in itertools.product(copies, repeat=2):
        assert same(one, other)


@settings(max_examples=200)
@given(values=tensors(), share=st.floats(0.03, 1), seed=st.integers(0, 2**32))
def test_noise_of_three_hundredths_is_seen_between_any_two_types(values, share, seed):
    random = torch.Generator().manual_seed(seed)
    turned = torch.where(torch.rand(values.shape, generator=random) < 0.5, -1.0, 1.0)
    if not (torch.from_numpy(sampled(values)[0]).abs() > 1e-3).any():
        return
    other = values * (1 + turned * share)
    for one, two in itertools.product(FLOATS, repeat=2):
        assert not same(values.to(one), other.to(two))


def test_a_light_fine_tune_of_a_layer_is_seen():
    """Steps of 1e-5 on weights of 0.02 are far below bfloat16's; small weights give them away."""
    torch.manual_seed(0)
    weights = {f"{layer}": torch.randn(256, 256) * 0.02 for layer in range(300)}
    tuned = {name: one + 1e-5 * torch.randn_like(one) for name, one in weights.items()}
    one, other = (
        weights_of({name: sampled(part) for name, part in side.items()}) for side in (weights, tuned)
    )
    assert weight_differences(one, other, ("table", "model"))


def grid_twin(value):
    """The nearest bfloat16, the even one of two, by trying its neighbours."""
    bits = int(np.float32(value).view(np.uint32)) >> 16
    near = [
        (abs(float(np.uint32(one << 16).view(np.float32)) - float(np.float32(value))), one & 1, one)
        for one in (bits, bits + 1)
    ]
    return min(near)[2]


@settings(max_examples=200)
@given(value=st.floats(-(2.0**99), 2.0**99, width=32))
def test_the_grid_is_bfloat16s(value):
    assert to_grid(np.array([value]))[0] == grid_twin(value)
    assert to_grid(np.array([value]))[0] == torch.tensor([value]).bfloat16().view(torch.uint16).numpy()[0]


def test_what_cannot_be_a_copy():
    ones = torch.ones(4, 4)
    assert not same(ones, torch.ones(4, 5))
    assert not same(ones, torch.full((4, 4), float("nan")))
    assert not same(ones * 1e5, (ones * 1e5).half())  # float16 makes it infinite
    assert not same(ones, -ones)
    assert not agree(to_grid(np.ones(3)), to_grid(np.ones(2))).any()
    packed = torch.arange(64, dtype=torch.uint8)
    assert same(packed, packed.clone())
    assert not same(packed, packed + 9)
    told = weight_differences(
        weights_of({"w": sampled(ones)}), weights_of({"w": sampled(2 * ones)}), ("table", "model")
    )
    assert told == ["8 of 8 sampled weights differ"]


def test_signatures_of_older_tables_become_the_same_vector():
    torch.manual_seed(1)
    parts = {
        "a": torch.randn(30, 30),
        "b": torch.randn(50).bfloat16(),
        "c": torch.tensor(2.5),
        "d": torch.arange(9, dtype=torch.uint8),
        "e": torch.randn(7, 3).half(),
    }
    old = {}
    for name, one in parts.items():
        values = sample(one, 32)
        if one.dtype == torch.bfloat16:
            kind, data = "bfloat16", values.view(torch.uint16).numpy().tobytes()
        else:
            kind, data = str(one.dtype).removeprefix("torch."), values.numpy().tobytes()
        shape = "x".join(map(str, one.shape)) or "scalar"
        old[name] = f"{kind} {shape} {base64.b64encode(data[:32]).decode()}"
    assert weights_now(old) == weights_of({name: sampled(one) for name, one in parts.items()})


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
