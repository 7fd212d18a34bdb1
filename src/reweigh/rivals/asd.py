"""ASD, activation steering decoding (Su et al., ACL 2025): contrast of a pass steered toward facts with one steered away.

y = (1 + alpha) a+ - alpha a-, where block l of the two passes sees h + lam v_l and h - lam v_l.

Written from the paper: no official program was found. Both passes are steered after every block and at every position,
prompt included. The vectors v_l come from labeled images (``reweigh compare`` makes them).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    Contrast,
    Pass,
    SteeringVectors,
    StreamEditor,
    edited_beside,
    in_range,
)


class ASD(StreamEditor, Contrast):
    """Contrast of two steered passes.

    What the paper leaves open is an option, recorded with every run; the defaults are ours.

    Args:
        vectors: Steering vectors, or their folder.
        lam: Strength of the steering; 0 is the base model.
        alpha: Weight of the contrast; 0 steers the main pass and needs no branch.
        force: Accept vectors of what seems to be another model.
    """

    title = "ASD (re-implemented)"
    grid = (("lam", (0.05, 0.1, 0.2)), ("alpha", (0.5, 1.0)))

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        vectors: SteeringVectors | str | Path,
        lam: float = 0.1,
        alpha: float = 1.0,
        force: bool = False,
    ) -> None:
        self.lam = in_range("lam", lam, 0)
        super().__init__(anatomy, processor, alpha=alpha if lam else 0.0, beta=0.0)
        self.vectors = SteeringVectors.of(vectors, anatomy, processor, force=force)
        self._vectors = torch.from_numpy(self.vectors.vectors)
        self.state_layers = range(len(anatomy.blocks)) if lam else ()

    def record(self) -> dict[str, Any]:
        """Record what the paper leaves open, and which vectors were used."""
        shown = {"lam": self.lam, "alpha": self.alpha, "positions": "all"}
        shown |= {"layers": list(range(len(self.anatomy.blocks))), "vectors_sha256": self.vectors.fingerprint}
        return {**super().record(), "options": shown}

    def before(self, forward: Pass) -> None:
        """Steer the main pass toward factual states."""
        forward.prompt.scratch = 1.0

    def reference(self, forward: Pass) -> Tensor | None:
        """The branch's logits; its passes are steered the other way."""
        forward.prompt.scratch = -1.0
        with edited_beside(forward):
            return super().reference(forward)

    def edit_state(self, layer: int, states: Tensor, forward: Pass) -> Tensor:
        """Add lam v_l, or subtract it in the branch."""
        sign: float = forward.prompt.scratch
        return states + (sign * self.lam * self._vectors[layer]).to(states.device, states.dtype)
