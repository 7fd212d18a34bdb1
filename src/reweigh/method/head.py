"""Facts about a head: its weight, its rows, and the dtype that its logits have when it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def float_weight(head: Any) -> Tensor | None:
    """The head's weight if it is a floating-point tensor; a quantised head packs its own."""
    weight = getattr(head, "weight", None)
    return weight if isinstance(weight, Tensor) and weight.is_floating_point() else None


def head_rows(head: Any) -> int:
    """Rows of the head: ranks run over all of them, rows beyond the tokenizer included."""
    weight = float_weight(head)
    return int(head.out_features if weight is None else weight.shape[0])


def head_width(head: Any) -> int:
    """Width of the states a head reads."""
    weight = float_weight(head)
    return int(head.in_features if weight is None else weight.shape[1])


def head_dtype(
    head: Any, width: int, device: torch.device | str, *, states: torch.dtype | None = None
) -> torch.dtype:
    """The dtype of ``head``'s output for states (P, ``width``) on ``device``, in the surroundings of the call.

    A plain linear layer outside autocast gives its weight's type; any other is run on one state of zeros, without its
    hooks. A weight on the meta device is an offloaded one, which is brought to the states when its layer runs.

    Args:
        states: Type of the states; by default that of a floating-point weight, else float32.
    """
    device = torch.device(device)
    weight = float_weight(head)
    floating = None if weight is None else weight.dtype
    given = states or floating or torch.float32
    kinds = ("cpu", "cuda") if device.type == "meta" else (device.type,)
    if type(head) is nn.Linear and given == floating and not any(map(torch.is_autocast_enabled, kinds)):
        return given
    with torch.no_grad():
        zeros = torch.zeros(1, width, dtype=given, device="cpu" if device.type == "meta" else device)
        logits: Tensor = head.forward(zeros)
    return logits.dtype
