"""The candidate rule of ``candidates``, compiled for the CPU: one call in place of a dozen. Importing needs numba.

A heap of the best ``width`` seen so far, its worst on top; tokens come in ascending order, so a later one must be
strictly larger to enter, which is the tie rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reweigh.method.kernels.compile import compiled


@compiled
def sink(values: Any, ids: Any, size: int) -> None:
    """Move the top of a heap to its place: worse is a smaller value, or an equal one with a higher id."""
    value, token = values[0], ids[0]
    hole = 0
    while True:
        child = 2 * hole + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            values[right] < values[child] or (values[right] == values[child] and ids[right] > ids[child])
        ):
            child = right
        if not (values[child] < value or (values[child] == value and ids[child] > token)):
            break
        values[hole], ids[hole] = values[child], ids[child]
        hole = child
    values[hole], ids[hole] = value, token


@compiled
def best_of_row(row: Any, values: Any, ids: Any) -> None:
    """Fill ``values`` and ``ids`` with the best of a row, best first."""
    width = values.size
    for i in range(width):  # a heap of placeholders, worse than any token
        values[i], ids[i] = -np.inf, row.size + width - i
    for i in range(width):
        values[0], ids[0] = row[i], i
        sink(values, ids, width)
    worst = values[0]
    for i in range(width, row.size):
        if row[i] > worst:
            values[0], ids[0] = row[i], i
            sink(values, ids, width)
            worst = values[0]
    for size in range(width - 1, 0, -1):  # the worst goes last
        values[0], values[size] = values[size], values[0]
        ids[0], ids[size] = ids[size], ids[0]
        sink(values, ids, size)


@compiled
def keep_of_row(probability: Any, ids: Any, mass: float, least: int, keep: Any) -> bool:
    """Mark the candidates among a row's best; False if the row forms no distribution.

    A row of NaN alone never entered the heap: its best is still a placeholder, whose id lies beyond the row.
    """
    if ids[0] >= probability.size or not probability[ids[0]] > 0:
        return False
    reached = 0.0
    for k in range(ids.size):
        keep[k] = k < least or reached < mass
        reached += np.float64(probability[ids[k]])
    return True


@compiled
def best_rows(
    logits: Any, probability: Any, mass: float, least: int, values: Any, ids: Any, keep: Any
) -> int:
    """Candidates of every row of ``logits`` (B, V); the first row without a distribution, or -1."""
    for b in range(logits.shape[0]):
        best_of_row(logits[b], values[b], ids[b])
        if not keep_of_row(probability[b], ids[b], mass, least, keep[b]):
            return b
    return -1
