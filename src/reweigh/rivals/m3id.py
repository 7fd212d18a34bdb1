"""M3ID (Favero et al., CVPR 2024): contrast with the prompt without image, stronger the longer the answer gets.

There is no official program; the formula is the paper's, the defaults those of the known re-implementations.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast
from reweigh.rivals.tools.inputs import without_image
from reweigh.rivals.tools.rules import contrast
from reweigh.runtime.decoder import ForwardPass, in_range


class M3ID(Contrast):
    """l = l_c + w_t (l_c - l_u) on log-probabilities, w_t = e^(decay t) - 1 for the t-th token, from 0.

    Args:
        decay: The paper's lambda.
        cap: Largest weight; without it the weight passes 50 at token 200. ``None`` for no bound.
        confident: Leave a step alone where the largest probability reaches this; ``None`` contrasts every step,
            as the re-implementations do.
    """

    title = "M3ID"
    log_space = True

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        decay: float = 0.02,
        cap: float | None = 10.0,
        confident: float | None = None,
    ) -> None:
        super().__init__(anatomy, processor, alpha=1.0, beta=0.0)
        self.decay = in_range("decay", decay, 0)
        self.cap = cap if cap is None else in_range("cap", cap, 0)
        self.confident = confident if confident is None else in_range("confident", confident, 0, 1)

    def branch_inputs(self, forward: ForwardPass) -> dict[str, Any]:
        """The prompt with the image taken out."""
        return without_image(self.anatomy, self.processor, forward.inputs)

    def weight_at(self, token: int) -> float:
        """The weight at the ``token``-th generated token."""
        weight = math.expm1(min(self.decay * token, 80.0))
        return weight if self.cap is None else min(weight, self.cap)

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Contrast each column with the weight of its place in the answer."""
        if not any(forward.trail.columns) or self.decay == 0:
            return None
        reference = self.reference(forward)
        if reference is None:
            return None
        count = reference.shape[1]
        main, reference = forward.logits[:, -count:].float(), reference.float()
        edited = torch.empty_like(main)
        first = forward.past + forward.length - forward.end - count + 1
        for column in range(count):
            weight = self.weight_at(max(0, first + column))
            edited[:, column] = contrast(main[:, column], reference[:, column], weight, 0.0, log_space=True)
        if self.confident is not None:
            sure = main.softmax(-1).amax(-1, keepdim=True) >= self.confident
            edited = torch.where(sure, main, edited)
        return forward.with_last(edited, forward.image_rows())
