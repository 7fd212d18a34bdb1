"""The type of the logits is what the head gives, not what its weight is stored in."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import stand_ins
from reweigh.method.lens import head_dtype

WIDTH = 8


@pytest.fixture
def seen():
    """Calls that hooks of every module saw."""
    calls = []
    hook = nn.modules.module.register_module_forward_hook(lambda *_: calls.append(1))
    yield calls
    hook.remove()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_plain_head_gives_its_own_type(dtype):
    head = nn.Linear(WIDTH, 20, bias=False).to(dtype)
    assert head_dtype(head, WIDTH, "cpu") == dtype == head(torch.zeros(1, WIDTH, dtype=dtype)).dtype


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_decides(dtype):
    head = nn.Linear(WIDTH, 20)
    with torch.autocast("cpu", dtype=dtype):
        assert head_dtype(head, WIDTH, "cpu") == dtype == head(torch.zeros(1, WIDTH)).dtype
    assert head_dtype(head, WIDTH, "cpu") == torch.float32


def test_a_quantised_head_gives_float32(seen):
    model = nn.Module()
    model.lm_head = nn.Linear(WIDTH, 20)
    head = stand_ins.quantised(model, head_only=True).lm_head
    assert not isinstance(head.weight, torch.Tensor)
    seen.clear()
    assert head_dtype(head, WIDTH, torch.device("cpu")) == torch.float32
    assert seen == [], "no hook sees the trial"


def test_a_head_that_casts_is_run():
    class Upcast(nn.Linear):
        def forward(self, x):
            return super().forward(x).float()

    assert head_dtype(Upcast(WIDTH, 20).to(torch.bfloat16), WIDTH, "cpu") == torch.float32


def test_packed_heads_are_asked_with_float32_states():
    class Packed(nn.Module):
        weight = nn.Parameter(torch.zeros(4, dtype=torch.uint8), requires_grad=False)

        def forward(self, x):
            return x.repeat(1, 3)

    assert head_dtype(Packed(), WIDTH, "cpu") == torch.float32
