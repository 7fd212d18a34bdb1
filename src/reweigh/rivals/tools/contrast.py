"""Contrast with a second branch: the main logits are pushed away from what a weakened input would say.

y = (1 + weight) a - weight r on the tokens that pass the plausibility cut. VCD, ICD, SID, PAI, M3ID, DAMRO and ASD are
this formula with different branches, spaces or weights.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.branch import Branch
from reweigh.rivals.tools.rules import contrast
from reweigh.runtime.decoder import Decoder, in_range
from reweigh.runtime.forward import Pass


class Contrast(Decoder):
    """A decoder that contrasts the main pass with one branch.

    Args:
        alpha: Weight of the contrast; 0 needs no branch.
        beta: Plausibility cut as a share of the largest probability; 0 cuts nothing.
        log_space: Mix log-probabilities instead of logits.
    """

    log_space = False

    def __init__(self, anatomy: Anatomy, processor: Any = None, *, alpha: float, beta: float) -> None:
        super().__init__(anatomy, processor)
        self.alpha = in_range("alpha", alpha, 0)
        self.beta = in_range("beta", beta, 0, 1)
        self.branch = Branch(anatomy, self.branch_inputs, type(self).__name__)

    def branch_inputs(self, forward: Pass) -> dict[str, Any]:
        """The branch's prompt: what the model's forward takes."""
        raise NotImplementedError

    def weight(self, forward: Pass) -> float | Tensor:
        """Weight of the contrast at this step: one for all, or (B, 1, 1) with one for each row."""
        return self.alpha

    def edit(self, forward: Pass) -> Tensor | None:
        """Contrast the last columns of rows that have an image."""
        if not forward.has_image or (self.alpha == 0 and self.beta == 0):
            return None
        main = forward.logits.float()
        reference = main[:, -forward.edited_columns() :] if self.alpha == 0 else self.reference(forward)
        if reference is None:
            return None
        main = main[:, -reference.shape[1] :]
        weight = self.weight(forward)
        edited = contrast(main, reference.float(), weight, self.beta, log_space=self.log_space)
        return forward.with_last(edited, forward.image_rows())

    def reference(self, forward: Pass) -> Tensor | None:
        """The branch's logits for the last columns of this pass."""
        return self.branch.logits(forward)
