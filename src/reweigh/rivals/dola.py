"""DoLa, decoding by contrasting layers (Chuang et al., ICLR 2024): the last layer minus the earlier one that differs most.

y = log p_N - log p_j on the tokens with p_N >= relative_top * max p_N, where layer j maximizes the divergence from N.

The official program chooses one layer for a whole batch; here each row chooses its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from reweigh.rivals.tools import (
    Anatomy,
    Decoder,
    EarlyLayers,
    bucket,
    in_range,
    is_tied,
    keep_ratio,
    mix,
    reversed_js,
)


class DoLa(EarlyLayers):
    """Contrast of the last layer with an earlier one, read without the final norm.

    Args:
        layers: "low" (the authors' bucket for long answers), "high", or indices of ``hidden_states`` (0 is the
            embeddings); a single index is the static variant.
        relative_top: Cut as a share of the largest probability; 0 subtracts raw logits and cuts nothing.
        repetition_penalty: Passed to ``generate`` unless the caller gives one.
    """

    title = "DoLa"
    grid = (("layers", ("low", "high")), ("relative_top", (0.01, 0.1, 0.3)))
    norm = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        layers: str | Sequence[int] = "low",
        relative_top: float = 0.1,
        repetition_penalty: float = 1.2,
    ) -> None:
        super().__init__(anatomy, processor, bucket(layers, len(anatomy.blocks), is_tied(anatomy)))
        self.relative_top = in_range("relative_top", relative_top, 0, 1)
        self.generation = {"repetition_penalty": in_range("repetition_penalty", repetition_penalty, 1e-3)}
        self.regime = {**Decoder.regime, **self.generation}

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """Subtract the earlier layer that differs most from the last."""
        main, early_log = final.log_softmax(-1), early.log_softmax(-1)
        chosen = reversed_js(main, early_log).argmax(dim=0)[None, :, None].expand(1, *final.shape)
        if self.relative_top == 0:
            return final - early.gather(0, chosen)[0]
        return mix(main, early_log.gather(0, chosen)[0], 1.0, -1.0, keep_ratio(main, self.relative_top))
