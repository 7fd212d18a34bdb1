"""Exact ranks without a compiler: NumPy on the CPU, torch on accelerators.

float32 logits are sorted, and so are 16-bit logits of a small vocabulary, widened; from V = 8,192 on, 16-bit logits are
counted into a histogram of their bit patterns. NumPy's SIMD sort of keys is an order of magnitude faster than torch's CPU
sort, which carries int64 indices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from reweigh.method.kernels.base import (
    INFINITY_BITS,
    WIDE_VOCAB,
    narrowed,
    refuse_nan,
    term_table,
)

Array = npt.NDArray[Any]

CHUNK_ELEMENTS = 1 << 24
"""Logits ranked at once: 128 rows of V = 131,072 suit a segmented sort; some 40 bytes of scratch for each."""


class NumpyKernel:
    """The default: needs nothing beyond torch and NumPy. CPU only."""

    name = "numpy"
    has_threads = False

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        logits = narrowed(logits)
        total = units.numpy()
        wanted = None if tokens is None else tokens.numpy()
        if logits.dtype != torch.float32 and logits.shape[1] >= WIDE_VOCAB:
            self._add_16_bit(logits, wanted, total)
        elif wanted is None:
            self._add_all(logits.float(), total)
        else:
            self._add_registered(logits.float(), wanted, total)

    def _add_all(self, logits: Tensor, total: Array) -> None:
        """Sort (key, token) packed into one int64: the high half orders, the low half says who it was."""
        vocab = logits.shape[1]
        terms, starts, ids = term_table(vocab), np.arange(vocab), np.arange(vocab, dtype=np.int64)
        for row in logits.numpy():
            if np.isnan(row.max()):
                raise refuse_nan(logits)
            packed = descending_keys(row).astype(np.int64)
            packed <<= 32
            packed |= ids
            packed.sort()
            keys = packed >> 32
            packed &= 0xFFFFFFFF
            first = keys[1:] != keys[:-1]
            if first.all():
                total[packed] += terms[1:]
            else:  # equal logits share the rank of the first of them
                starts[1:] = np.where(first, ids[1:], 0)
                total[packed] += terms[np.maximum.accumulate(starts) + 1]

    def _add_registered(self, logits: Tensor, tokens: Array, total: Array) -> None:
        """Sort the values alone, then find the registered ones among them."""
        vocab = logits.shape[1]
        terms = term_table(vocab)
        for row in logits.numpy():
            scores = row[tokens]
            order = np.argsort(scores)  # searching for ascending keys keeps the search in the cache
            ascending = np.sort(row)
            if np.isnan(ascending[-1]):
                raise refuse_nan(logits)
            not_larger = np.searchsorted(ascending, scores[order], side="right")
            total[order] += terms[vocab + 1 - not_larger]

    def _add_16_bit(self, logits: Tensor, tokens: Array | None, total: Array) -> None:
        """Count every bit pattern: the number of larger logits is a suffix sum, with nothing to refine."""
        terms = term_table(logits.shape[1])
        limit = INFINITY_BITS[logits.dtype]
        for row in logits.view(torch.int16).numpy():
            keys = ascending_keys_16(row)
            if keys.max() > 32768 + limit or keys.min() < 32767 - limit:
                raise refuse_nan(logits)
            counts = np.bincount(keys, minlength=65536)
            larger = np.zeros(65536, dtype=np.int64)
            np.cumsum(counts[:0:-1], out=larger[-2::-1])
            total += terms[larger[keys if tokens is None else keys[tokens]] + 1]


def descending_keys(row: Array) -> Array:
    """Map float32 (no NaN) to int32 whose ascending order is the descending order of the values; -0 is +0."""
    bits = (row + np.float32(0)).view(np.int32)
    bits ^= (bits >> 31) & 0x7FFFFFFF
    flipped: Array = ~bits
    return flipped


def ascending_keys_16(bits: Array) -> Array:
    """Map int16 bit patterns of bfloat16 or float16 to 0..65535 in the order of their values; -0 is +0."""
    keys = bits.astype(np.int64)
    keys[keys == -32768] = 0
    keys ^= (keys >> 63) & 0x7FFF
    keys += 32768
    return keys


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
    """Return ranks in descending order of the logits, and the tokens they belong to; both (P, V)."""
    ordered, order = torch.sort(logits, dim=1, descending=True)
    starts = torch.arange(logits.shape[1], dtype=torch.int32, device=logits.device).repeat(len(logits), 1)
    starts[:, 1:].masked_fill_(ordered[:, 1:] == ordered[:, :-1], 0)
    return starts.cummax(dim=1).values + 1, order


def _ranks_by_searching(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the ranks of ``tokens`` (R,) in each row, (P, R)."""
    ascending = torch.sort(logits, dim=1).values
    not_larger = torch.searchsorted(ascending, logits[:, tokens].contiguous(), right=True)
    return logits.shape[1] + 1 - not_larger


def _ranks_by_counting(logits: Tensor, tokens: Tensor | None) -> Tensor:
    """Rank all tokens, or ``tokens``, by a histogram of the 16-bit patterns of each row."""
    keys = (logits + 0.0).view(torch.int16).long()  # adding zero folds -0 into +0
    keys = 32767 - torch.where(keys < 0, keys ^ 0x7FFF, keys)  # 0..65535, the largest value first
    counts = torch.zeros(logits.shape[0], 65536, dtype=torch.int32, device=logits.device)
    counts.scatter_add_(1, keys, torch.ones_like(keys, dtype=torch.int32))
    larger = counts.cumsum(dim=1, dtype=torch.int32) - counts
    return larger.gather(1, keys if tokens is None else keys[:, tokens]) + 1
