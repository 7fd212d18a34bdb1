"""VCD, visual contrastive decoding (Leng et al., CVPR 2024): contrast with the same prompt and a noised image."""

from __future__ import annotations

from typing import Any

import torch

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import forwardable, picture_parts
from reweigh.rivals.tools.noise import diffuse
from reweigh.runtime.decoder import SAMPLING, ForwardPass


class VCD(Contrast):
    """y = (1 + alpha) a - alpha a' on the tokens with a >= max a + ln beta, on raw logits.

    Args:
        alpha: Weight of the contrast. The official sampler falls back to 0.5 where the caller forgets it, which is
            how its InstructBLIP script runs.
        beta: Plausibility cut; the official POPE script uses 0.2.
        noise_step: 0-based step of the noise schedule.
        seed: Seed of the noise, the same for each row so that a row does not depend on its batch; ``None`` draws
            from torch's global generator as the official program does.
    """

    title = "VCD"
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.1,
        noise_step: int = 500,
        seed: int | None = 42,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        diffuse(torch.zeros(1), noise_step, torch.Generator())  # refuses a wrong step at once
        self.noise_step = noise_step
        self.seed = seed

    def branch_inputs(self, forward: ForwardPass) -> dict[str, Any]:
        """The main prompt with each picture noised, once."""
        inputs = forwardable(self.anatomy, forward.inputs)
        parts = picture_parts(self.anatomy, forward.inputs)
        inputs["pixel_values"] = torch.cat([diffuse(part, self.noise_step, self._draw()) for part in parts])
        return inputs

    def _draw(self) -> torch.Generator | None:
        return None if self.seed is None else torch.Generator().manual_seed(self.seed)
