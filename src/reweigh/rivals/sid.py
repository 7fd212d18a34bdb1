"""SID, self-introspective decoding (Huo et al., ICLR 2025): contrast with a branch that sees the least attended image.

y = (1 + alpha) a - alpha r on the tokens with a >= max a + ln beta. In branch r, from block ``layer`` on, all image keys are
masked except the ``keep`` that the current token attends to least in the block before, chosen anew at every step.

The official greedy option ignores the cut (``beta=0``); its sampler, followed here, applies it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import SAMPLING, Anatomy, Contrast, InputError, Pass, image_keys, in_range


class SID(Contrast):
    """Contrast with the least attended image.

    Args:
        alpha: Weight of the contrast.
        beta: Plausibility cut.
        keep: Image keys that stay, the least attended ones; an image with no more leaves only the cut.
        layer: First block without the other keys; attention is read in the block before.
    """

    title = "SID"
    grid = (("alpha", (0.5, 1.0, 2.0)), ("beta", (0.1, 0.3)))
    regime = SAMPLING

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 1.0,
        beta: float = 0.1,
        keep: int = 100,
        layer: int = 2,
    ) -> None:
        super().__init__(anatomy, processor, alpha=alpha, beta=beta)
        if not 1 <= layer < len(anatomy.blocks):
            raise InputError(f"layer {layer} is out of range", hint=f"use 1 to {len(anatomy.blocks) - 1}")
        self.keep = int(in_range("keep", keep, 0))
        self.layer = layer
        self.attends = self.alpha > 0

    def see_attention(self, layer: int, weights: Tensor, values: Tensor, forward: Pass | None) -> None:
        """Choose the image keys that the branch's current token attends to most: they are dropped."""
        if forward is None or forward.is_running or layer != self.layer - 1:  # the main pass is left alone
            return
        if weights.shape[-2] == weights.shape[-1]:
            weights = weights[:, :, -1:]  # the last token chooses for the prompt, any later one for itself
        shares = weights.float().mean(dim=1)  # (B, n, S)
        width = shares.shape[-1]
        image = image_keys(forward.rows_of(len(shares)), width, width, shares.device)[:, None]
        order = shares.masked_fill(~image, float("inf")).argsort(dim=-1, stable=True)
        place = order.argsort(dim=-1)
        forward.prompt.scratch = (image & (place >= self.keep))[:, None]  # (B, 1, n, S)

    def edit_attention(self, layer: int, scores: Tensor, forward: Pass | None) -> Tensor:
        """Mask the dropped keys in the branch's later blocks."""
        drop = None if forward is None or forward.is_running else forward.prompt.scratch
        if drop is None or layer < self.layer:
            return scores
        lowest = torch.finfo(scores.dtype).min
        # above the mask's own value: an image token left without any key must still not see the future
        dropped = drop & (scores > lowest / 2)
        return scores.masked_fill(dropped, lowest / 4)
