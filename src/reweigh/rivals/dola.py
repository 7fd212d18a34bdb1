"""DoLa, decoding by contrasting layers (Chuang et al., ICLR 2024): the last layer minus the earlier one that differs most.

Needs no image and no second pass: candidate layers are read through the head at the last position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.rivals.tools.buckets import bucket, is_tied
from reweigh.rivals.tools.early import EarlyLayers
from reweigh.rivals.tools.rules import keep_ratio, mix, reversed_js
from reweigh.runtime.decoder import Decoder, in_range


class DoLa(EarlyLayers):
    """y = log p_last - log p_j on the tokens with p >= relative_top * max p; j maximises the divergence.

    Args:
        layers: "low" (the long-answer bucket), "high", or indices of ``hidden_states`` (0 is the embeddings); one
            index is the static variant.
        relative_top: Cut as a share of the largest probability; 0 gives raw logits minus raw logits, uncut.
        norm: Apply the final norm to the earlier layers; the official program does not.
        repetition_penalty: Passed to ``generate`` unless the caller gives one; official for generation.
        shared_layer: Choose one layer for the whole batch by the mean divergence, as the official program does.
    """

    title = "DoLa"

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        layers: str | Sequence[int] = "low",
        relative_top: float = 0.1,
        norm: bool = False,
        repetition_penalty: float = 1.2,
        shared_layer: bool = False,
    ) -> None:
        super().__init__(anatomy, processor, bucket(layers, len(anatomy.blocks), is_tied(anatomy)), norm=norm)
        self.relative_top = in_range("relative_top", relative_top, 0, 1)
        self.shared_layer = shared_layer
        self.generation = {"repetition_penalty": in_range("repetition_penalty", repetition_penalty, 1e-3)}
        self.regime = {**Decoder.regime, **self.generation}

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """The last layer minus the earlier one that differs most from it."""
        main, early_log = final.log_softmax(-1), early.log_softmax(-1)
        apart = reversed_js(main, early_log)  # (J, B)
        if self.shared_layer:
            apart = apart.mean(dim=1, keepdim=True).expand_as(apart)
        chosen = apart.argmax(dim=0)[None, :, None].expand(1, *final.shape)
        if self.relative_top == 0:
            return final - early.gather(0, chosen)[0]
        return mix(main, early_log.gather(0, chosen)[0], 1.0, -1.0, keep_ratio(main, self.relative_top))
