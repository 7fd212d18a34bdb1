"""M3ID (Favero et al., CVPR 2024): contrast with the prompt without image, stronger the longer the answer gets.

l = l_c + w_t (l_c - l_u) on log-probabilities, w_t = e^(decay t) - 1 for the t-th token, from 0.

There is no official program: the formula is the paper's without its confidence indicator, which the known
re-implementations leave out, and the default decay is theirs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.contrast import Contrast, contrast
from reweigh.rivals.tools.inputs import without_image
from reweigh.runtime.decoder import Pass, in_range


class M3ID(Contrast):
    """Contrast with the prompt without image.

    Args:
        decay: The paper's lambda.
        cap: Largest weight; without it the weight passes 50 at token 200. ``None`` for no limit.
    """

    title = "M3ID"
    grid = (("decay", (0.01, 0.015, 0.02, 0.03, 0.04, 0.06)),)

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        decay: float = 0.02,
        cap: float | None = 10.0,
    ) -> None:
        super().__init__(anatomy, processor, alpha=1.0, beta=0.0)
        self.decay = in_range("decay", decay, 0)
        self.cap = cap if cap is None else in_range("cap", cap, 0)

    def branch_inputs(self, forward: Pass) -> dict[str, Any]:
        """The prompt with the image taken out."""
        return without_image(self.anatomy, self.processor, forward.inputs)

    def weight_at(self, token: int) -> float:
        """The weight at the ``token``-th generated token."""
        weight = math.expm1(min(self.decay * token, 80.0))
        return weight if self.cap is None else min(weight, self.cap)

    def rule(self, main: Tensor, reference: Tensor, forward: Pass) -> Tensor:
        """Contrast each column with the weight of its position in the answer."""
        first = forward.past + forward.length - forward.end - main.shape[1] + 1
        columns = [
            contrast(a, u, self.weight_at(max(0, first + column)), 0.0, log_space=True)
            for column, (a, u) in enumerate(zip(main.unbind(1), reference.unbind(1), strict=True))
        ]
        return torch.stack(columns, dim=1)

    def edit(self, forward: Pass) -> Tensor | None:
        """Contrast the last columns, unless the weight never grows."""
        return None if self.decay == 0 else super().edit(forward)
