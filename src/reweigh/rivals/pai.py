"""PAI, pay attention to image (Liu et al., ECCV 2024): more attention to the image, less of the text-only answer.

Attention scores of the query that chooses a token: s <- s + alpha |s| for image keys, before the softmax.
Logits, as log-probabilities: y = gamma (a - u) + u, where u is a branch without image.

As in the official program, attention in the prompt's pass is amplified only when gamma is 1. Unlike there, the branch
follows its beams under beam search.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import Anatomy, Contrast, Pass, image_keys, in_range

BETA = 0.1
"""Plausibility cut of the contrast, a constant in the official program."""


class PAI(Contrast):
    """Amplified attention to the image, and a contrast with the prompt without image.

    Args:
        alpha: Amplification of attention to the image; 0 leaves attention (and its implementation) untouched.
        gamma: Weight of the contrast; 1 needs no branch. The README uses 1.1, the command line defaults to 2.
        start_layer: First block whose attention is amplified.
    """

    title = "PAI"
    grid = (("alpha", (0.2, 0.5, 0.8)), ("gamma", (1.1, 1.5)))
    log_space = True
    is_blind = True

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 0.2,
        gamma: float = 1.1,
        start_layer: int = 2,
    ) -> None:
        in_range("gamma", gamma, 1)
        super().__init__(anatomy, processor, alpha=gamma - 1, beta=BETA if gamma > 1 else 0.0)
        self.amplify = in_range("alpha", alpha, 0)
        self.gamma = gamma
        self.start_layer = int(in_range("start_layer", start_layer, 0, len(anatomy.blocks)))
        self.attends = self.amplify > 0

    def edit_attention(self, layer: int, scores: Tensor, forward: Pass | None) -> Tensor:
        """Amplify the attention to image keys of queries that choose a token; never in the branch."""
        if forward is None or not (forward.is_running and forward.has_image) or layer < self.start_layer:
            return scores
        total, width = forward.past + forward.length, scores.shape[-1]
        first = forward.prompt.end - (
            self.gamma == 1
        )  # the official program edits no prompt that is contrasted
        if not forward.prompt.generates and forward.past:  # a loop of the caller's own
            first = total - 1
        first = min(max(0, first - forward.past), forward.length)
        if first == forward.length:
            return scores
        before, own = scores[:, :, :first], scores[:, :, first:]
        image = image_keys(forward.rows, total, width, scores.device)[:, None, None]
        # a key outside the window stays outside: its score is a huge negative number, not an attention
        image = image & (own > torch.finfo(own.dtype).min / 2)
        return torch.cat([before, torch.where(image, own + self.amplify * own.abs(), own)], dim=2)
