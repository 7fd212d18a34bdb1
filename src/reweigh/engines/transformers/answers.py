"""The states that a model has at the tokens of an answer, read in one pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        self.found = [forward.states[layer][:, -self.columns :].float() for layer in sorted(self.layers)]


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
    return torch.stack(reader.found, dim=2)[0].cpu()


@torch.no_grad()
def last_states(anatomy: Anatomy, run: Callable[[], Any], layers: Sequence[int]) -> Tensor:
    """Residual states (B, L, d) of the last column after some blocks, in the one pass that ``run`` makes."""
    reader = _Reader(anatomy, layers, 1)
    with HookManager.of(anatomy).serving(reader.request()):
        run()
    return torch.stack([state[:, 0] for state in reader.found], dim=1)


@torch.no_grad()
def hidden_states(anatomy: Anatomy, inputs: Mapping[str, Any], tokens: Sequence[int]) -> Tensor:
    """transformers' ``hidden_states`` (T, L + 1, d) of a prompt of one row with an answer; the last index is normed."""
    device = inputs["input_ids"].device
    longer = followed_by(inputs, torch.tensor([list(tokens)], device=device))
    output = anatomy.model(**{**longer, **forward_options(anatomy)}, output_hidden_states=True)
    found = getattr(output, "hidden_states", None)
    found = output.language_model_outputs.hidden_states if found is None else found
    return torch.stack([state[0].float().cpu() for state in found], dim=1)
