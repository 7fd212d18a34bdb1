"""Decoders that read earlier layers through the head, at the very columns whose logits they edit. No second pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.families.anatomy import Anatomy
from reweigh.method.lens import Lens
from reweigh.runtime.decoder import Decoder, ForwardPass


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
        self.lens = Lens(anatomy.norm, anatomy.head)

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """New logits (B, V) of one column, from its own ``final`` (B, V) and its ``early`` ones (J, B, V)."""
        raise NotImplementedError

    def edit(self, forward: ForwardPass) -> Tensor | None:
        """Combine each edited column of the pass."""
        count = forward.edited_columns()
        edited = torch.stack([self._column(forward, -count + i) for i in range(count)], dim=1)
        return forward.with_last(edited)

    def _column(self, forward: ForwardPass, column: int) -> Tensor:
        final = forward.logits[:, column].float()
        streams = (forward.states[index - 1][:, column] for index in self.indices)
        early = [self.lens.read(stream, norm=self.norm).float().to(final.device) for stream in streams]
        return self.combine(final, torch.stack(early))
