"""VCD, visual contrastive decoding (Leng et al., CVPR 2024): contrast with the same prompt and a noised image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.decoders.contrast import Contrast
from reweigh.decoders.noise import diffuse
from reweigh.engines.base import SAMPLING, ForwardPass
from reweigh.engines.transformers.inputs import forwardable, pixels, prompt_ids
from reweigh.families.anatomy import Anatomy


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
        picture = pixels(forward.inputs)
        parts = torch.split(picture, self._shares(picture, prompt_ids(forward.inputs)))
        inputs["pixel_values"] = torch.cat([diffuse(part, self.noise_step, self._draw()) for part in parts])
        return inputs

    def _shares(self, picture: Tensor, ids: Tensor) -> list[int]:
        """How many entries of the pixel tensor each row has: one for each image, tile or patch of it."""
        if picture.ndim == 5:  # (images, tiles, channels, height, width)
            return [1] * picture.shape[0]
        tokens = torch.isin(ids, torch.tensor(self.anatomy.image_tokens, device=ids.device)).sum(dim=1)
        shares = (tokens * picture.shape[0]) // tokens.sum()
        found = [share for share in shares.tolist() if share]
        return found if sum(found) == picture.shape[0] else [picture.shape[0]]

    def _draw(self) -> torch.Generator | None:
        return None if self.seed is None else torch.Generator().manual_seed(self.seed)
