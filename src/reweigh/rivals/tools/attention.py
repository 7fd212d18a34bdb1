"""Which attention keys are image columns, for the methods that edit attention."""

from __future__ import annotations

import torch
from torch import Tensor


def key_mask(columns: list[list[int]], rows: int, total: int, width: int, device: torch.device) -> Tensor:
    """Which of the ``width`` keys are image columns, bool (rows, width).

    Keys are the last ``width`` of ``total`` columns; a longer, pre-allocated cache has empty keys behind them.
    """
    mask = torch.zeros(len(columns), max(total, width), dtype=torch.bool)
    for row, own in enumerate(columns):
        mask[row, [column for column in own if column < total]] = True
    mask = mask[:, total - width : total] if width <= total else mask
    return mask.to(device).repeat_interleave(rows // max(1, len(columns)), dim=0)
