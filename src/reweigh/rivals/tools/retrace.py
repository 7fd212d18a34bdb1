"""The formulas of MemVR: how unsure a block is, and one MLP's output mixed with the image's features."""

from __future__ import annotations

import math

import torch
from torch import Tensor

TOP = 10


def uncertainty(logits: Tensor) -> Tensor:
    """Entropy of the softmax over the 10 largest logits (..., V), over ln 10."""
    shares = logits.float().topk(TOP, dim=-1).values.softmax(-1)
    entropy: Tensor = -torch.xlogy(shares, shares).sum(dim=-1)
    return entropy / math.log(TOP)


def retraced(visual: Tensor, x: Tensor, first_scale: float | None = None) -> Tensor:
    """The image's features (N, d) seen by MLP inputs (..., d): (x V^T) V, or SiLU(x (s V)^T) V with a scale s."""
    seen = x @ visual.T if first_scale is None else torch.nn.functional.silu(x @ (first_scale * visual).T)
    return seen @ visual


def mixed(out: Tensor, again: Tensor, ratio: float) -> Tensor:
    """(1 - ratio) out + ratio (mean|out| / mean|again|) again, with means over everything given."""
    return (1 - ratio) * out + ratio * (out.abs().mean() / again.abs().mean()) * again


def looked_again(
    out: Tensor, x: Tensor, visual: Tensor, ratio: float, up_scale: float | None = None
) -> Tensor:
    """An MLP's output (..., d) for the input x, mixed with the image's features (N, d), in the output's own type.

    ``up_scale`` is mean|W_up| where a SiLU stands between the products: s = mean|W_up| / mean|V|.
    """
    visual = visual.to(x.device)
    scale = None if up_scale is None else up_scale / float(visual.abs().mean())
    return mixed(out.float(), retraced(visual, x.float(), scale), ratio).to(out.dtype)
