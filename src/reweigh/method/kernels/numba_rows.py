"""The optional fast kernel: compiled rows for float32 and 16-bit logits. Importing this module needs numba."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from reweigh.method.kernels import numba_float16, numba_float32
from reweigh.method.kernels.base import (
    INFINITY_BITS,
    WIDE_VOCAB,
    narrowed,
    refuse_nan,
    term_table,
)
from reweigh.method.kernels.numpy_sort import NumpyKernel

MANY = 0.15
"""Share of the vocabulary from which ranking all tokens is faster than ranking the registered ones."""


class NumbaKernel:
    """Compiled kernel for the CPU; compiles on first use and then loads from numba's cache."""

    name = "numba"
    has_threads = False

    def add(self, logits: Tensor, tokens: Tensor | None, units: Tensor) -> None:
        vocab = logits.shape[1]
        logits = narrowed(logits)
        if logits.dtype != torch.float32 and vocab >= WIDE_VOCAB:
            bits = logits.view(torch.int16).numpy()
            wanted = np.empty(0, np.int64) if tokens is None else tokens.numpy()
            infinity = INFINITY_BITS[logits.dtype]
            bad = numba_float16.add_by_counting(bits, wanted, infinity, term_table(vocab), units.numpy())
        elif vocab > numba_float32.LARGEST_VOCAB:  # ids would not fit beside the keys
            NumpyKernel().add(logits, tokens, units)
            return
        elif tokens is None or tokens.numel() > MANY * vocab:
            total = units if tokens is None else torch.zeros(vocab, dtype=torch.int64)
            rows = logits.float().numpy()
            digit = (
                8 if vocab < 4096 else 10 if vocab < 65536 else 11
            )  # bits of a pass; its table fits the cache
            bad = numba_float32.add_all(rows, digit, term_table(vocab), total.numpy())
            if tokens is not None:
                units += total[tokens]
        else:
            buckets = min(65536, max(1024, 1 << (vocab - 1).bit_length() - 1))  # about one per logit
            bad = numba_float32.add_registered(
                logits.float().numpy(), tokens.numpy(), buckets, term_table(vocab), units.numpy()
            )
        if bad >= 0:
            raise refuse_nan(logits)
