"""The step of ``edit``, compiled for the CPU: candidates, shifts and edit in one call. Importing needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from reweigh.method.measure.kernels.compile import compiled
from reweigh.method.register.candidates_compiled import best_of_row, keep_of_row


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
def edit_logits(
    logits: Any,
    probability: Any,
    rows: Any,
    strengths: Any,
    betas: Any,
    mass: float,
    least: int,
    width: int,
) -> int:
    """``edit_rows`` for a caller who wants the logits alone."""
    shape = (rows.size, width)
    ids, keep = np.empty(shape, np.int64), np.empty(shape, np.bool_)
    values = np.empty((2, rows.size, width), np.float32)
    return int(edit_rows(logits, probability, rows, strengths, betas, mass, least, ids, keep, values))
