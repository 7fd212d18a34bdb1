"""DeCo (Wang et al., ICLR 2025): the last layer helped by the earlier layer that is surest of a candidate token.

y = a + alpha * p_max * a_j on the candidates, where layer j holds the largest candidate probability p_max.

The official program serves batches of one; here each row chooses its own layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import Anatomy, EarlyLayers, bucket, candidates, in_range, mix, scaled_layers


def keep_prefix(logits: Tensor, mass: float, least: int, most: int) -> Tensor:
    """Mark the shortest prefix of tokens, by probability, that holds ``mass``, in (B, V)."""
    chosen = candidates(logits, mass=mass, least=least, most=most)
    kept = torch.zeros_like(logits, dtype=torch.bool)
    return kept.scatter_(1, chosen.ids, chosen.keep)


class DeCo(EarlyLayers):
    """Help from an earlier layer, read through the final norm.

    Candidates are the shortest prefix of tokens that holds ``mass``, at most ``most`` of them.

    Args:
        alpha: Weight of the earlier layer; 0 leaves the candidates' logits unchanged.
        layers: Indices of ``hidden_states``; by default 20 to 28 of 32 blocks, and the same share of other depths.
        mass: Probability mass of the candidates.
        most: Largest number of candidates.
    """

    title = "DeCo"
    grid = (("alpha", (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)),)

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 0.6,
        layers: Sequence[int] | None = None,
        mass: float = 0.9,
        most: int = 20,
    ) -> None:
        count = len(anatomy.blocks)
        usual = scaled_layers(20, 28, count) if layers is None else layers
        super().__init__(anatomy, processor, bucket(usual, count, tied=False))
        self.alpha = in_range("alpha", alpha, 0)
        self.mass = in_range("mass", mass, 0, 1)
        self.most = int(in_range("most", most, 1))

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """Add the earlier layer that is surest of a candidate."""
        keep = keep_prefix(final, self.mass, 1, self.most)
        sure = early.softmax(-1).masked_fill(~keep, -1.0).amax(dim=-1)  # (J, B)
        largest, chosen = sure.max(dim=0)
        picked = early.gather(0, chosen[None, :, None].expand(1, *final.shape))[0]
        return mix(final, largest[:, None] * picked, 1.0, self.alpha, keep)
