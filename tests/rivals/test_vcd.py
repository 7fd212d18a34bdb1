"""VCD: the noise against its schedule, a step against two fresh passes."""

from __future__ import annotations

import math

import pytest
import torch

import reweigh
from checkpoints import FAMILIES
from reweigh.errors import InputError
from reweigh.rivals.vcd import diffuse, schedule


def run(model, inputs, **options):
    torch.manual_seed(3)
    return model.generate(
        **inputs, max_new_tokens=4, return_dict_in_generate=True, output_logits=True, **options
    )


@pytest.mark.parametrize(
    ("step", "picture", "noise"),
    [(0, 1.000, 0.005), (250, 0.989, 0.147), (500, 0.863, 0.505), (700, 0.593, 0.805), (999, 0.285, 0.959)],
)
def test_schedule(step, picture, noise):
    left = schedule()[step].item()
    assert (round(math.sqrt(left), 3), round(math.sqrt(1 - left), 3)) == (picture, noise)


def test_schedule_twin():
    left, product = schedule(), 1.0
    for i in range(1000):
        x = -6 + 12 * i / 999
        product *= 1 - (1 / (1 + math.exp(-x)) * (0.005 - 1e-5) + 1e-5)
        assert abs(left[i].item() - product) < 1e-4


def test_diffuse_draws_as_the_official_program_does():
    picture = torch.randn(1, 3, 8, 8)
    torch.manual_seed(42)
    noise = torch.randn_like(picture)
    left = schedule()[500]
    wanted = left.sqrt() * picture + (1 - left).sqrt() * noise
    torch.testing.assert_close(diffuse(picture, 500, torch.Generator().manual_seed(42)), wanted)
    torch.manual_seed(42)
    torch.testing.assert_close(diffuse(picture, 500), wanted)


def test_half_precision_is_noised_in_single():
    picture = torch.randn(1, 3, 8, 8)
    noised = diffuse(picture.half(), 10, torch.Generator().manual_seed(0))
    assert noised.dtype == torch.float16
    wanted = diffuse(picture.half().float(), 10, torch.Generator().manual_seed(0)).half()
    assert torch.equal(noised, wanted)


@pytest.mark.parametrize("step", [-1, 1000, 2.5, True])
def test_a_wrong_step_is_refused(step, loaded):
    model, processor = loaded("llava")
    with pytest.raises(InputError, match=r"noise[ _]step"):
        reweigh.decoder("vcd", model, processor, noise_step=step)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_is_noised_alike_in_any_batch(family, loaded, batch):
    model, processor = loaded(family)

    def noised(inputs):
        kept = []
        with reweigh.decoder("vcd", model, processor) as attached:
            make = attached.decoder.branch_inputs
            attached.decoder.branch_inputs = lambda forward: kept.append(make(forward)) or dict(kept[-1])
            model.generate(**inputs, max_new_tokens=1, do_sample=False)
        return kept[0]["pixel_values"]

    both = noised(batch(family))
    alone = [noised(batch(family, rows=(row,))) for row in (0, 1)]
    if both.ndim == 5:  # tiles are padded to the most of the batch; those of a row come first
        for row in (0, 1):
            assert torch.equal(both[row, : alone[row].shape[1]], alone[row][0])
    else:
        assert torch.equal(both, torch.cat(alone))


def test_vcd_step(loaded, batch, answer):
    """The formula on the two passes' raw logits, cut included, before any processor."""
    model, processor = loaded("llava")
    inputs = batch("llava")
    with reweigh.decoder("vcd", model, processor, alpha=0.7, beta=0.2) as attached:
        make, kept = attached.decoder.branch_inputs, []
        attached.decoder.branch_inputs = lambda forward: kept.append(make(forward)) or dict(kept[-1])
        found = run(model, inputs, do_sample=False)
    for step, logits in enumerate(found.logits):
        tokens = found.sequences[:, inputs["input_ids"].shape[1] :][:, :step]
        a, r = answer(model, inputs, tokens), answer(model, kept[0], tokens)
        keep = ~(a < a.amax(-1, keepdim=True) + torch.log(torch.tensor(0.2)))
        wanted = torch.where(keep, 1.7 * a - 0.7 * r, torch.tensor(float("-inf")))
        torch.testing.assert_close(logits, wanted, atol=1e-3, rtol=1e-4)
