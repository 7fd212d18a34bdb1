"""Exact ranks without a compiler: NumPy on the CPU, torch on accelerators.

NumPy's SIMD sort of keys is an order of magnitude faster than torch's CPU sort, which carries int64 indices. On an
accelerator the 16-bit logits of a wide vocabulary are counted into a histogram of their bit patterns instead of sorted.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from reweigh.method.kernels.base import WIDE_VOCAB, refuse_nan, term_table

CHUNK_ELEMENTS = 1 << 24
"""Logits ranked at once: 128 rows of V = 131,072 suit a segmented sort; some 40 bytes of scratch for each."""


def add_by_numpy(logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
    """Sort (key, token) packed into one int64; the key orders as the logit does, largest first."""
    vocab = logits.shape[1]
    terms, ids, starts = term_table(vocab), np.arange(vocab), np.arange(vocab)
    total = np.zeros(vocab, dtype=np.int64)
    for row in logits.float().numpy():
        if np.isnan(row.max()):
            raise refuse_nan(logits)
        bits = (row + np.float32(0)).view(np.int32)  # adding zero folds -0 into +0
        bits ^= (bits >> 31) & 0x7FFFFFFF
        items = (~bits).astype(np.int64) << 32 | ids
        items.sort()
        keys = items >> 32
        starts[1:] = np.where(keys[1:] != keys[:-1], ids[1:], 0)
        total[items & 0xFFFFFFFF] += terms[np.maximum.accumulate(starts) + 1]  # equal logits share a rank
    units += torch.from_numpy(total if tokens is None else total[tokens.numpy()])


def add_by_torch(logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
    """Rank where the logits are, without waiting for an accelerator: there, the caller refuses NaN."""
    if logits.is_cpu and torch.isnan(logits).any():
        raise refuse_nan(logits)
    vocab = logits.shape[1]
    terms = _terms(vocab, logits.device)
    count = logits.dtype != torch.float32 and vocab >= WIDE_VOCAB
    for chunk in torch.split(logits, max(1, CHUNK_ELEMENTS // max(vocab, 65536 if count else 1))):
        ranks = _by_counting(chunk, tokens) if count else _by_searching(chunk.float(), tokens)
        units += terms[ranks].sum(dim=0)


@lru_cache(maxsize=4)
def _terms(vocab: int, device: torch.device) -> Tensor:
    return torch.tensor(term_table(vocab), device=device)


def _by_searching(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """Rank all tokens, or ``tokens``, by their places among the sorted logits of each row."""
    ascending = torch.sort(logits, dim=1).values
    wanted = logits if tokens is None else logits[:, tokens].contiguous()
    return logits.shape[1] + 1 - torch.searchsorted(ascending, wanted, right=True)


def _by_counting(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """Rank all tokens, or ``tokens``, by a histogram of the 16-bit patterns of each row."""
    keys = (logits + 0.0).view(torch.int16).long()  # adding zero folds -0 into +0
    keys = 32767 - torch.where(keys < 0, keys ^ 0x7FFF, keys)  # 0..65535, the largest value first
    counts = torch.zeros(logits.shape[0], 65536, dtype=torch.int32, device=logits.device)
    counts.scatter_add_(1, keys, torch.ones_like(keys, dtype=torch.int32))
    larger = counts.cumsum(dim=1, dtype=torch.int32) - counts
    return larger.gather(1, keys if tokens is None else keys[:, tokens]) + 1
