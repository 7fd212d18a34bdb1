"""VCD, visual contrastive decoding (Leng et al., CVPR 2024): contrast with the same prompt and a noised image.

y = (1 + alpha) a - alpha a' on the tokens with a >= max a + ln beta, on raw logits.

The official program only samples; here any way of decoding works.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import SAMPLING, Anatomy, Contrast, Prompt, forwardable, in_range, picture_parts

STEPS = 1000


class VCD(Contrast):
    """Contrast with a noised image.

    Args:
        alpha: Weight of the contrast; 0.5 in the official InstructBLIP runs, whose script forgets to pass it.
        beta: Plausibility cut; the official POPE script uses 0.2.
        noise_step: 0-based step of the noise schedule.
        seed: Seed of the noise, the same for each row so that a row does not depend on its batch.
    """

    title = "VCD"
    grid = (("alpha", (0.5, 1.0, 2.0)), ("beta", (0.1, 0.3)))
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.1,
        noise_step: int = 500,
        seed: int = 42,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        self.noise_step = int(in_range("noise_step", noise_step, 0, STEPS - 1))
        self.seed = seed

    def branch_inputs(self, prompt: Prompt) -> dict[str, Any]:
        """Return the main prompt with noised pictures."""
        noised = [
            diffuse(part, self.noise_step, torch.Generator().manual_seed(self.seed))
            for part in picture_parts(self.anatomy, prompt.inputs)
        ]
        return {**forwardable(self.anatomy, prompt.inputs), "pixel_values": torch.cat(noised)}


def schedule() -> Tensor:
    """Return the share of the picture's variance left after each step, float32 (1000,)."""
    rates = torch.sigmoid(torch.linspace(-6, 6, STEPS)) * (0.5e-2 - 1e-5) + 1e-5
    return torch.cumprod(1 - rates, dim=0)


def diffuse(picture: Tensor, step: int, generator: torch.Generator | None = None) -> Tensor:
    """Return x_t = sqrt(a_t) x_0 + sqrt(1 - a_t) e on normalized pixels, with e drawn on the CPU in float32.

    ``step`` is a 0-based index, so step 0 already adds a little noise.
    """
    left = schedule()[step]
    noise = torch.randn(picture.shape, generator=generator)
    mixed = left.sqrt() * picture.detach().float().cpu() + (1 - left).sqrt() * noise
    return mixed.to(picture.device, picture.dtype)
