"""Which attention keys are image columns, for the methods that edit attention."""

from __future__ import annotations

import torch
from torch import Tensor

from reweigh.runtime.sequence import Sequence


def key_mask(rows: list[Sequence], total: int, width: int, device: torch.device) -> Tensor:
    """Which of the ``width`` keys of each row are image columns, bool (rows, width).

    Keys are the last ``width`` of ``total`` columns; a longer, pre-allocated cache has empty keys behind them.
    """
    mask = torch.zeros(len(rows), max(total, width), dtype=torch.bool)
    for row, sequence in enumerate(rows):
        mask[row, [column for column in sequence.positions if column < total]] = True
    mask = mask[:, total - width : total] if width <= total else mask
    return mask.to(device)
