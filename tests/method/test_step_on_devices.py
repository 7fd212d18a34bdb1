"""A step as an accelerator runs it: its memory, and that nothing in it waits for the device."""

from __future__ import annotations

import pytest
import torch

from reweigh.errors import NumericsError
from reweigh.method.edit import StepEditor


def peak_bytes(call):
    """The most memory that a call holds at once beyond what was there before, temporaries of operators included."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as found:
        kept = call()
    held = peak = 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    del kept
    return peak


def test_the_meter_sees_temporaries_inside_an_operator():
    values = torch.zeros(1000, 1000)
    assert values.nbytes <= peak_bytes(lambda: values + 1) < 1.01 * values.nbytes
    assert peak_bytes(lambda: torch.logsumexp(values, dim=1)) > 0.99 * values.nbytes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("ties", [False, True])
def test_a_step_takes_at_most_twelve_bytes_a_logit(dtype, some, ties, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    logits = torch.randn(16, 30000).mul(3).to(dtype)
    logits = logits.round() if ties else logits
    rows = torch.arange(1, 16) if some else None
    editor = StepEditor(torch.rand(15 if some else 16, 30000), torch.tensor(1.0), rows)
    editor(logits)
    assert peak_bytes(lambda: editor(logits)) <= 12 * logits.numel() * 1.02


@pytest.mark.parametrize("rows", [None, [0, 2]])
def test_a_step_never_waits_for_its_device(rows):
    """Tensors on the meta device have no values: reading one raises."""
    count = 3 if rows is None else len(rows)
    logits = torch.zeros(3, 4000, device="meta", dtype=torch.bfloat16)
    chosen = None if rows is None else torch.tensor(rows, device="meta")
    betas = torch.zeros(count, device="meta")
    editor = StepEditor(torch.zeros(count, 4000, device="meta"), betas, chosen)
    assert editor(logits).shape == (3, 4000)
    assert editor.step(logits).shifts.shape == (count, 50)
    with pytest.raises((RuntimeError, NotImplementedError)):
        editor.require_sound()  # reads a value


def test_broken_rows_of_an_accelerator_are_reported_when_it_is_waited_for(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    monkeypatch.setattr(torch.Tensor, "is_cpu", False)
    editor = StepEditor(torch.zeros(3, 60), torch.tensor(1.0))
    logits = torch.randn(3, 60)
    editor(logits)
    editor.require_sound()
    broken = logits.clone()
    broken[1, 5] = float("nan")
    edited = editor(broken)
    assert torch.equal(edited.nan_to_num(7), broken.nan_to_num(7))
    editor(logits)
    with pytest.raises(NumericsError, match="row 1 "):
        editor.require_sound()


def test_one_step_needs_few_operators(monkeypatch):
    """Each operator costs microseconds, which a small model notices."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.number += 1
            return func(*args, **(kwargs or {}))

    logits, strengths = torch.randn(1, 500), torch.rand(1, 500)
    editor = StepEditor(strengths, torch.tensor(1.0))
    editor(logits)
    with Count() as counted:
        editor(logits)
    assert counted.number <= 32
