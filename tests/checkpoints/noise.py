"""Random parameters under which no part of a model can be skipped unseen.

A fresh transformers model has norm weights of one and biases of zero: leaving out a norm's weight would then
pass a parity test. Here every parameter is moved, and the head is wide enough for logits that differ visibly.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import nn

Model = TypeVar("Model", bound=nn.Module)
LOGIT_SPREAD = 2.5  # standard deviation of the logits that random heads give on unit-scale states


@torch.no_grad()
def perturb(model: Model, seed: int = 0) -> Model:
    """Redraw all matrices at unit gain, shake all vectors (norm weights, biases), in place."""
    generator = torch.Generator().manual_seed(seed)
    tables = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is not None:
        tables.add(id(head.weight))
    for parameter in model.parameters():
        if parameter.dim() < 2:
            shake = torch.rand(parameter.shape, generator=generator)
            shift = torch.rand(parameter.shape, generator=generator)
            parameter.mul_(0.5 + shake).add_(0.4 * shift - 0.2)
        else:
            width = parameter.shape[-1] if id(parameter) in tables else parameter[0].numel()
            gain = LOGIT_SPREAD if id(parameter) in tables else 1.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * gain / math.sqrt(width))
    return model.eval()
