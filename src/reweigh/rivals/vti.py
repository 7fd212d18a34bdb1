"""VTI, visual and textual intervention (Liu et al., ICLR 2025), text part: MLP outputs turned toward truthful answers.

x <- |x| unit(unit(x) + 0.1 lam unit(t_l)) after the MLP of every block, at every position. t_l is the mean difference
between the states of truthful and hallucinated answers at their last token, plus its first principal component.

The factor 0.1 is the official program's. Its visual part, which steers vision towers with a fixed number of patches, is
left out. Its authors wrote pairs of captions; here the pairs come from the model's own answers (``reweigh compare`` makes
them).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    Pass,
    SteeringVectors,
    StreamEditor,
    in_range,
    require_plain_mlps,
    turned,
)

SCALE = 0.1


class VTI(StreamEditor):
    """Steering toward truthful answers.

    Args:
        vectors: Steering vectors, or their folder.
        lam: Strength of the steering; 0 is the base model. The README uses 0.9, the command line defaults to 0.8.
        force: Accept vectors of what seems to be another model.
    """

    title = "VTI (text)"
    grid = (("lam", (0.2, 0.4, 0.6, 0.9, 1.2, 1.8)),)
    reads_every_step = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        vectors: SteeringVectors | str | Path,
        lam: float = 0.9,
        force: bool = False,
    ) -> None:
        super().__init__(anatomy, processor)
        require_plain_mlps(anatomy, self.title)
        self.lam = in_range("lam", lam, 0)
        self.vectors = SteeringVectors.of(vectors, anatomy, processor, force=force)
        self._direction = torch.from_numpy(self.vectors.direction)
        self.mlp_layers = range(len(anatomy.blocks)) if lam else ()

    def record(self) -> dict[str, Any]:
        """Record the strength, and which directions were used."""
        shown = {"lam": self.lam, "vectors_sha256": self.vectors.fingerprint}
        return {**super().record(), "options": shown}

    def edit_mlp(self, layer: int, x: Tensor, out: Tensor, forward: Pass) -> Tensor:
        """Turn every position toward the block's direction."""
        return turned(out.float(), self._direction[layer].to(out.device), SCALE * self.lam)
