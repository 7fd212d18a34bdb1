"""Nullu (Yang et al., CVPR 2025): the subspace in which hallucinated answers differ, projected out of MLP outputs.

m <- m - V^T V m in the upper half of the blocks, where the rows of V_l are the leading right singular vectors of the
differences between the mean states of truthful and hallucinated answers. This equals the official edit of the
weights, W_down <- (I - V^T V) W_down, and leaves the weights alone.

The official pairs of answers are LURE's; here the pairs come from the model's own answers (``reweigh compare`` makes them).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import Anatomy, Pass, SteeringVectors, StreamEditor, in_range


def projected_off(x: Tensor, basis: Tensor) -> Tensor:
    """Remove from states (..., d) their part in the span of orthonormal rows V (k, d): x - V^T V x."""
    return x - (x @ basis.T) @ basis


class Nullu(StreamEditor):
    """Hallucinated directions projected out of MLP outputs.

    Args:
        vectors: Steering vectors, or their folder.
        rank: Directions removed in each block; 0 is the base model. The README uses 4, the command line defaults to 8.
        layers: Blocks to edit; by default the upper half.
        force: Accept vectors of what seems to be another model.
    """

    title = "Nullu"
    grid = (("rank", (1, 2, 4, 6, 8, 12)),)
    reads_every_step = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        vectors: SteeringVectors | str | Path,
        rank: int = 4,
        layers: Sequence[int] | None = None,
        force: bool = False,
    ) -> None:
        super().__init__(anatomy, processor)
        self.vectors = SteeringVectors.of(vectors, anatomy, processor, force=force)
        self.rank = int(in_range("rank", rank, 0, self.vectors.subspace.shape[1]))
        count = len(anatomy.blocks)
        wanted = range(count // 2, count) if layers is None else layers
        self.edited = sorted({anatomy.check_layer(layer) for layer in wanted})
        self.mlp_layers = self.edited if rank else ()
        self._basis = torch.from_numpy(self.vectors.subspace[:, : self.rank])

    def record(self) -> dict[str, Any]:
        """Record the rank, the blocks, and which directions were used."""
        shown = {"rank": self.rank, "layers": self.edited, "vectors_sha256": self.vectors.fingerprint}
        return {**super().record(), "options": shown}

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor:
        """Project every position off the block's subspace."""
        return projected_off(out.float(), self._basis[layer].to(out.device))
