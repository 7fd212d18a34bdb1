"""Rows shared out among threads. Each thread adds to integers of its own, so their number changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from reweigh.errors import NumericsError
from reweigh.method.kernels.base import refuse_nan

WORTH_A_THREAD = 1 << 20
"""Logits below which starting a thread costs more than it saves."""


def over_threads(add: Callable[[Tensor, Tensor], None], logits: Tensor, units: Tensor) -> None:
    """Call ``add(rows, units)`` on blocks of the rows of ``logits``, as many as torch may use threads."""
    threads = min(torch.get_num_threads(), logits.shape[0], logits.numel() // WORTH_A_THREAD)
    if threads < 2:
        add(logits, units)
        return
    blocks = torch.tensor_split(logits, threads)
    shares = [torch.zeros_like(units) for _ in blocks]
    try:
        with ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(add, blocks, shares):
                pass
    except NumericsError:  # a block knows its own rows only; the error names the row among all of them
        raise refuse_nan(logits) from None
    for share in shares:
        units += share
