"""Earlier layers read through the head, at the columns whose logits are edited, and the layer sets of DoLa and ReVisiT.

Layers are indices of transformers' ``hidden_states``: 0 is the embeddings, j the input of block j, N the last block's
output after the final norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from reweigh.engines.base import Decoder, Pass
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.method.lens import Lens

OFFICIAL_DEPTH = 32
"""Blocks of LLaVA-1.5-7B, for which the authors chose their layers."""

DEEP = 40
"""In deeper models a bucket is the first or the last twenty layers."""


class EarlyLayers(Decoder):
    """Base of DoLa and DeCo, which differ in how they combine the last layer with the earlier ones.

    Args:
        indices: Indices of ``hidden_states`` to read.
    """

    needs_image = False
    norm: ClassVar[bool] = True
    """Whether the final norm is applied to the earlier layers; to the last one it always is."""

    def __init__(self, anatomy: Anatomy, processor: Any, indices: Sequence[int]) -> None:
        super().__init__(anatomy, processor)
        self.indices = list(indices)
        self.last = len(anatomy.blocks)
        self.layers = frozenset(index - 1 for index in self.indices)
        self.lens = Lens(anatomy.norm, anatomy.head)

    def combine(self, final: Tensor, early: Tensor) -> Tensor:
        """Return new logits (B, V) of one column from its ``final`` (B, V) and ``early`` (J, B, V) logits."""
        raise NotImplementedError

    def edit(self, forward: Pass) -> Tensor | None:
        """Combine each edited column of the pass."""
        count = forward.edited_columns()
        columns = [
            self.read_and_combine(
                forward.logits[:, column], {layer: forward.states[layer][:, column] for layer in self.layers}
            )
            for column in range(-count, 0)
        ]
        return forward.with_last(torch.stack(columns, dim=1))

    def read_and_combine(self, logits: Tensor, streams: dict[int, Tensor]) -> Tensor:
        """Return new logits (B, V) of one column from its own and from the streams (B, d) after ``layers``."""
        final = logits.float()
        early = [
            self.lens.read(streams[index - 1], norm=self.norm or index == self.last).float().to(final.device)
            for index in self.indices
        ]
        return self.combine(final, torch.stack(early))


def reversed_js(first: Tensor, second: Tensor) -> Tensor:
    """The divergence of DoLa and ReVisiT between log-probabilities (..., V): mean over V, arguments reversed.

    ½ (mean_v m (ln m - ln p) + mean_v m (ln m - ln q)) with m = ½ (p + q). The textbook's Jensen-Shannon divergence has
    KL(p | m) and a sum; the two can choose different tokens or layers.
    """
    middle = (first.exp() + second.exp()) / 2
    log_middle = middle.log()
    terms = middle * (2 * log_middle - first - second)
    return torch.where(middle > 0, terms, torch.zeros_like(terms)).mean(dim=-1) / 2


def scaled_layers(first: int, last: int, count: int) -> list[int]:
    """Return the indices from ``first`` to ``last`` of 32 blocks, or the same share of another depth."""
    return list(range(first * count // OFFICIAL_DEPTH, last * count // OFFICIAL_DEPTH + 1))


def first_index(count: int, tied: bool) -> int:
    """Return the first index of a bucket. Tied embeddings predict the input token, so their first states are skipped."""
    return min(2, max(0, count // 2 - 1)) if tied else 0


def bucket(name: str | Sequence[int], count: int, tied: bool) -> list[int]:
    """Return the indices that a name ("low", "high") or a list stands for, in a model of ``count`` blocks."""
    if name == "low":
        found = list(range(first_index(count, tied), count // 2 if count <= DEEP else 20, 2))
    elif name == "high":
        found = list(range(count // 2 if count <= DEEP else count - 20, count, 2))
    elif isinstance(name, str):
        raise InputError(f"unknown layers {name!r}", hint='"low", "high", or a list of indices')
    else:
        found = list(name)
    if not found or not all(0 <= index <= count for index in found):
        raise InputError(
            f"layers {name!r} are not layers of a model of {count} blocks",
            hint=f"use indices of hidden_states: 0 (the embeddings) to {count} (the last block, after the final norm)",
        )
    return found


def is_tied(anatomy: Anatomy) -> bool:
    """Whether input and output embeddings are the same matrix, whatever the configuration says."""
    own: Any = anatomy.language_model
    return getattr(own.get_input_embeddings(), "weight", None) is getattr(anatomy.head, "weight", own)
