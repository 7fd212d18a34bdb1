"""Exact ranks with torch operations only, for accelerators: bounded memory, integer atomics.

float32 logits are sorted, and so are 16-bit logits of a small vocabulary, widened; from V = 8,192 on, 16-bit logits are
counted into a histogram of their bit patterns.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from reweigh.method.kernels.base import WIDE_VOCAB, refuse_nan, term_table

CHUNK_ELEMENTS = 1 << 24
"""Logits ranked at once: 128 rows of V = 131,072 suit a segmented sort; some 40 bytes of scratch for each."""


class TorchKernel:
    """Run where the logits are, without waiting for an accelerator: there, the caller refuses NaN."""

    name = "torch"
    has_threads = True

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        if logits.is_cpu and torch.isnan(logits).any():
            raise refuse_nan(logits)
        vocab = logits.shape[1]
        terms = _terms(vocab, logits.device)
        count = logits.dtype != torch.float32 and vocab >= WIDE_VOCAB
        for chunk in torch.split(logits, max(1, CHUNK_ELEMENTS // max(vocab, 65536 if count else 1))):
            if count:
                units += terms[_ranks_by_counting(chunk, tokens)].sum(dim=0)
            elif tokens is None:
                ranks, order = _ranks_by_sorting(chunk.float())
                units.index_add_(0, order.flatten(), terms[ranks].flatten())
            else:
                units += terms[_ranks_by_searching(chunk.float(), tokens)].sum(dim=0)


@lru_cache(maxsize=4)
def _terms(vocab: int, device: torch.device) -> Tensor:
    return torch.tensor(term_table(vocab), device=device)


def _ranks_by_sorting(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Ranks in descending order of the logits, and the tokens they belong to; both (P, V)."""
    ordered, order = torch.sort(logits, dim=1, descending=True)
    starts = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device).repeat(len(logits), 1)
    starts[:, 1:].masked_fill_(ordered[:, 1:] == ordered[:, :-1], 0)
    return starts.cummax(dim=1).values + 1, order


def _ranks_by_searching(logits: Tensor, tokens: Tensor) -> Tensor:
    """Ranks of ``tokens`` (R,) in each row, (P, R)."""
    ascending = torch.sort(logits, dim=1).values
    not_larger = torch.searchsorted(ascending, logits[:, tokens].contiguous(), right=True)
    return logits.shape[1] + 1 - not_larger


def _ranks_by_counting(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """Ranks of all tokens, or of ``tokens``, from a histogram of the 16-bit patterns of each row."""
    keys = (logits + 0.0).view(torch.int16).long()  # adding zero folds -0 into +0
    keys = 32767 - torch.where(keys < 0, keys ^ 0x7FFF, keys)  # 0..65535, the largest value first
    counts = torch.zeros(logits.shape[0], 65536, dtype=torch.int32, device=logits.device)
    counts.scatter_add_(1, keys, torch.ones_like(keys, dtype=torch.int32))
    larger = counts.cumsum(dim=1, dtype=torch.int32) - counts
    return larger.gather(1, keys if tokens is None else keys[:, tokens]) + 1
