"""The states that a model has at the tokens of an answer, read in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.transformers.arguments import followed_by
from reweigh.engines.transformers.manager import HookManager
from reweigh.engines.transformers.measure import forward_options
from reweigh.families.anatomy import Anatomy
from reweigh.runtime.decoder import Decoder
from reweigh.runtime.forward import Pass


class _Reader(Decoder):
    """Keeps the states of a pass's last columns, and edits nothing."""

    def __init__(self, anatomy: Anatomy, layers: Sequence[int], columns: int) -> None:
        super().__init__(anatomy)
        self.layers = frozenset(layers)
        self.columns = columns
        self.found: list[Tensor] = []

    def edit(self, forward: Pass) -> None:
        self.found = [
            forward.states[layer][0, -self.columns :].float().cpu() for layer in sorted(self.layers)
        ]


@torch.no_grad()
def answer_states(
    anatomy: Anatomy, inputs: Mapping[str, Any], tokens: Sequence[int], layers: Sequence[int]
) -> Tensor:
    """Residual states (n, L, d) of an answer's tokens after some blocks; ``inputs`` are its prompt, one row."""
    device = inputs["input_ids"].device
    longer = followed_by(inputs, torch.tensor([list(tokens)], device=device))
    reader = _Reader(anatomy, layers, len(tokens))
    with HookManager.of(anatomy).serving(reader.request()):
        anatomy.model(**{**longer, **forward_options(anatomy)})
    return torch.stack(reader.found, dim=1)
