"""M3ID (Favero et al., CVPR 2024): contrast with the prompt without image, stronger the longer the answer gets.

y = a + w_t (a - u) on log-probabilities, w_t = e^(decay t) - 1 for the t-th token, from 0; u is the branch without image.

There is no official program. The formula is the paper's without its confidence indicator, which known re-implementations
leave out; the default decay is theirs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import BRANCH, Anatomy, Contrast, Pass, contrasted, in_range

CAP = 10.0
"""Largest weight; without it the weight passes 50 at token 200."""


class M3ID(Contrast):
    """Contrast with the prompt without image.

    Args:
        decay: The paper's lambda.
    """

    title = "M3ID"
    grid = (("decay", (0.01, 0.015, 0.02, 0.03, 0.04, 0.06)),)
    is_blind = True

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, decay: float = 0.02) -> None:
        self.decay = in_range("decay", decay, 0)
        super().__init__(anatomy, processor, alpha=float(decay > 0), beta=0.0)

    def weights(self, tokens: Tensor) -> Tensor:
        """The weights at the given tokens of an answer."""
        return torch.expm1(self.decay * tokens).clamp_max(CAP)

    def rule(self, main: Tensor, reference: Tensor, forward: Pass) -> Tensor:
        """Contrast each column with the weight of its position in the answer."""
        # in a loop of the caller's own, only the branch knows where the prompt ended
        prompt = forward.prompt
        end = prompt.end if prompt.generates else prompt.batch.branches[BRANCH].prompt_end
        last, count = forward.past + forward.length - end, main.shape[1]
        tokens = torch.arange(last - count + 1, last + 1, device=main.device)
        weights = self.weights(tokens.clamp_min(0))  # a further turn shows columns of its prompt, too
        return contrasted(main, reference, weights[:, None], 0.0, log_space=True)
