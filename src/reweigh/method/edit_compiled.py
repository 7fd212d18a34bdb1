"""The step of ``edit``, compiled for the CPU: candidates, shifts and edit in one call. Importing needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from reweigh.method.candidates_compiled import best_of_row, keep_of_row
from reweigh.method.kernels.compile import compiled

SHORT = 8
"""Length of the list that is tried first; at least the candidate rule's least."""

SMALL = 4096
"""Largest vocabulary for it: beyond, a second look at every logit costs more than the longer list."""


@intrinsic
def pointer(_context: Any, address: Any) -> Any:
    """An address as the pointer that ``carray`` reads."""

    def generate(_context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@compiled
def edit_rows(
    logits: Any,
    probability: Any,
    rows: Any,
    strengths: Any,
    betas: Any,
    mass: float,
    least: int,
    ids: Any,
    keep: Any,
    values: Any,
) -> int:
    """Edit ``rows`` of ``logits`` (B, V) in place; the first of them without a distribution, or -1.

    ``values`` (2, n, C) gets the candidates' raw logits and what each lost.
    """
    raw, shifts = values[0], values[1]
    for n in range(rows.size):
        b = rows[n]
        best_of_row(logits[b], raw[n], ids[n])
        if not keep_of_row(probability[b], ids[n], mass, least, keep[n]):
            return n
        for k in range(ids.shape[1]):
            token = ids[n, k]
            shifts[n, k] = strengths[n, token] * betas[n] if keep[n, k] else 0.0
            if keep[n, k]:
                logits[b, token] = raw[n, k] - shifts[n, k]
    return -1


@compiled
def mass_of(probability: Any, ids: Any) -> float:
    """The probability that some tokens hold together, added in their order as the candidate rule adds it."""
    reached = 0.0
    for k in range(ids.size):
        reached += np.float64(probability[ids[k]])
    return reached


@compiled
def edit_logits(
    logits_at: int,
    probability_at: int,
    total: int,
    rows_at: int,
    strengths_at: int,
    betas_at: int,
    count: int,
    vocabulary: int,
    mass: float,
    least: int,
    width: int,
) -> int:
    """``edit_rows`` for a caller who wants logits alone; every array by its address, ``count`` of ``total`` rows to edit.

    The edited logits take the place of the probabilities, which spares a copy of the logits in memory of its own.
    Few tokens hold most of the mass at most steps: a short list is tried first, the whole one only where it falls short.
    """
    ids, keep = np.empty(width, np.int64), np.empty(width, np.bool_)
    raw = np.empty(width, np.float32)
    rows = carray(pointer(rows_at), (count,), np.int64)
    betas = carray(pointer(betas_at), (count,), np.float32)
    strengths = carray(pointer(strengths_at), (count, vocabulary), np.float32)
    logits = carray(pointer(logits_at), (total, vocabulary), np.float32)
    probability = carray(pointer(probability_at), (total, vocabulary), np.float32)
    n = 0
    for b in range(total):
        size = 0
        if n < count and rows[n] == b:
            size = min(SHORT, width) if vocabulary <= SMALL else width
            while True:
                best_of_row(logits[b], raw[:size], ids[:size])
                if not keep_of_row(probability[b], ids[:size], mass, least, keep[:size]):
                    return n
                if size == width or mass_of(probability[b], ids[:size]) >= mass:
                    break
                size = width
        edited = probability[b]
        edited[:] = logits[b]
        for k in range(size):
            if keep[k]:
                edited[ids[k]] = raw[k] - strengths[n, ids[k]] * betas[n]
        n += size > 0
    return -1
