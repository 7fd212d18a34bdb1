"""The diffusion noise of VCD: a picture blurred step by step towards white noise, in normalised pixel units."""

from __future__ import annotations

import torch
from torch import Tensor

from reweigh.errors import InputError

STEPS = 1000


def schedule() -> Tensor:
    """The share of the picture's variance that is left after each step, float32 (1000,)."""
    rates = torch.sigmoid(torch.linspace(-6, 6, STEPS)) * (0.5e-2 - 1e-5) + 1e-5
    return torch.cumprod(1 - rates, dim=0)


def diffuse(picture: Tensor, step: int, generator: torch.Generator | None = None) -> Tensor:
    """x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) e, with e drawn on the CPU in float32.

    ``step`` is a 0-based index, so step 0 already adds a little noise.
    """
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < STEPS:
        raise InputError(
            f"noise step {step!r} is out of range", hint=f"give an integer from 0 to {STEPS - 1}"
        )
    left = schedule()[step]
    noise = torch.randn(picture.shape, generator=generator)
    mixed = left.sqrt() * picture.detach().float().cpu() + (1 - left).sqrt() * noise
    return mixed.to(picture.device, picture.dtype)
