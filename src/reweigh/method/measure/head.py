"""The type the head's logits really have, which autocast and quantised layers decide when it runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def head_dtype(
    head: Any, width: int, device: torch.device | str, *, states: torch.dtype | None = None
) -> torch.dtype:
    """The dtype of ``head``'s output for states (P, ``width``) on ``device``, in the surroundings of the call.

    A plain linear layer outside autocast gives its weight's type; any other is run on one state of zeros, without its
    hooks.

    Args:
        states: Type of the states; by default that of a floating-point weight, else float32.
    """
    device = torch.device(device)
    weight = getattr(head, "weight", None)
    floating = weight.dtype if isinstance(weight, Tensor) and weight.is_floating_point() else None
    given = states or floating or torch.float32
    if type(head) is nn.Linear and given == floating and not torch.is_autocast_enabled(device.type):
        return given
    with torch.no_grad():
        logits: Tensor = head.forward(torch.zeros(1, width, dtype=given, device=device))
    return logits.dtype
