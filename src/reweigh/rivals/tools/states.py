"""Residual states of an answer's tokens, and of the last column of a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.base import Pass
from reweigh.engines.transformers.arguments import followed_by
from reweigh.engines.transformers.manager import watching
from reweigh.errors import InputError
from reweigh.families.anatomy import Anatomy
from reweigh.measuring import forward_options


@torch.no_grad()
def answer_states(
    anatomy: Anatomy, inputs: Mapping[str, Any], tokens: Sequence[int], layers: Sequence[int]
) -> Tensor:
    """Return the residual states (n, L, d) of an answer's tokens after some blocks; ``inputs`` are its prompt, one row."""
    device = inputs["input_ids"].device
    longer = followed_by(inputs, torch.tensor([list(tokens)], device=device))
    passes: list[Pass] = []
    with watching(anatomy, layers, passes.append):
        anatomy.model(**{**longer, **forward_options(anatomy)})
    return _last_columns(passes, layers, len(tokens))[0].cpu()


@torch.no_grad()
def last_states(anatomy: Anatomy, run: Callable[[], Any], layers: Sequence[int]) -> Tensor:
    """Return the residual states (B, L, d) of the last column after some blocks, in the one pass that ``run`` makes."""
    passes: list[Pass] = []
    with watching(anatomy, layers, passes.append):
        run()
    return _last_columns(passes, layers, 1)[:, 0]


@torch.no_grad()
def hidden_states(anatomy: Anatomy, inputs: Mapping[str, Any], tokens: Sequence[int]) -> Tensor:
    """Return transformers' ``hidden_states`` (T, L + 1, d) of one prompt with an answer; the last index is normed."""
    device = inputs["input_ids"].device
    longer = followed_by(inputs, torch.tensor([list(tokens)], device=device))
    output = anatomy.model(**{**longer, **forward_options(anatomy)}, output_hidden_states=True)
    found = getattr(output, "hidden_states", None)
    found = output.language_model_outputs.hidden_states if found is None else found
    return torch.stack([state[0].float().cpu() for state in found], dim=1)


def _last_columns(passes: Sequence[Pass], layers: Sequence[int], count: int) -> Tensor:
    """Return the states (B, ``count``, L, d) of the last columns of the last pass, in float32."""
    if not passes:
        raise InputError("the model made no forward pass")
    states = [passes[-1].states[layer][:, -count:].float() for layer in sorted(layers)]
    return torch.stack(states, dim=2)
