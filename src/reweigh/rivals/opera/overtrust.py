"""OPERA's arithmetic: which earlier token the answer leans on, how much that costs, and when to roll back.

Column scores are products over the whole answer, so they are kept as sums of logarithms; a product is only formed at
the end, with the resolution of a 16-bit float, which is what the official program stores, but without its overflow.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TINY = 1e-7
EARLY = 10
"""Up to this many tokens attention to the image is a bonus and nothing is rolled back; fixed in the official program."""

LARGEST = 65504.0


def grow(sums: Tensor, row: Tensor, scale: float) -> Tensor:
    """Add one attention row to the column sums.

    Args:
        sums: Sums of ln(scale * A_ij) over the rows i >= j so far, float64 (..., t).
        row: The new row's normalised attention to the answer, itself included (..., t + 1).
    """
    return torch.nn.functional.pad(sums, (0, 1)) + (scale * row.double()).log()


def column_scores(sums: Tensor) -> Tensor:
    """c_j = 1e-7 * product of the column, rounded to 16 bits below the largest such number, float64 (..., t)."""
    log_scores = sums + math.log(TINY)
    rounded = log_scores.clamp(max=math.log(LARGEST)).exp().to(torch.float16).double()
    return torch.where(log_scores > math.log(LARGEST), LARGEST + log_scores - math.log(LARGEST), rounded)


def penalties(sums: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
    """The penalty (k, C) and the column leant on (k, C) of each candidate.

    Args:
        sums: Column sums with the candidate's own row, (k, C, R).
        image: The candidate row's share of attention on the image, (k, C).
    """
    largest, where = column_scores(sums).max(dim=-1)
    early = sums.shape[-1] <= EARLY
    return (-image.double() if early else largest), where


def leant_on(history: Tensor, where: int, threshold: int) -> bool:
    """Whether every beam's history (k, n) names column ``where`` more than ``threshold`` times, late enough."""
    return where >= EARLY and bool(((history == where).sum(dim=-1) > threshold).all())
