"""Decoders that read earlier layers through the head, at the very columns whose logits they edit. No second pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.decoders.base import Decoder, edited_columns, put_last
from reweigh.engines.transformers.tap import Glimpse
from reweigh.families.anatomy import Anatomy
from reweigh.method.measure.lens import Lens


class EarlyLayers(Decoder):
    """Base of DoLa and DeCo; they differ in how they combine the last layer with the earlier ones.

    Args:
        indices: Indices of ``hidden_states`` to read; 0 is the embeddings.
        norm: Whether the final norm is applied to them.
    """

    needs_image = False

    def __init__(
        self, anatomy: Anatomy, processor: Any, indices: Sequence[int], *, norm: bool = True
    ) -> None:
        super().__init__(anatomy, processor)
        self.indices = list(indices)
        self.layers = frozenset(index - 1 for index in self.indices)
        self.norm = norm
        self.lens = Lens(anatomy)

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """New logits (B, V) of one column, from its own ``final`` (B, V) and its ``early`` ones (J, B, V)."""
        raise NotImplementedError

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Combine each edited column of the pass."""
        count = edited_columns(glimpse)
        edited = torch.stack([self._column(glimpse, -count + i) for i in range(count)], dim=1)
        return put_last(glimpse, edited)

    def _column(self, glimpse: Glimpse, column: int) -> Tensor:
        final = glimpse.logits[:, column].float()
        streams = (glimpse.states[index - 1][:, column] for index in self.indices)
        early = [self.lens.read(stream, norm=self.norm).float().to(final.device) for stream in streams]
        return self.combine(final, torch.stack(early))
