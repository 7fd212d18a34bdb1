"""The bounded edit (Eq. shift), as one pure step: z'(v) = z(v) - beta s_I(v) for candidates, z(v) for all others.

To be read beside the paper. Batched, with a beta for each row; never waits for an accelerator and never writes into
the logits it is given. Knows nothing of engines: whoever holds logits and strengths can call it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.register.candidates import (
    LEAST,
    MASS,
    MOST,
    Candidates,
    candidates,
    is_compiled,
    no_distribution,
    probabilities,
)


def check_beta(beta: Any) -> float:
    """The maximum penalty: finite and not negative."""
    if isinstance(beta, bool) or not isinstance(beta, Real) or not math.isfinite(beta) or beta < 0:
        raise InputError(
            f"beta is {beta!r}; it must be a finite number >= 0", hint="the paper uses 0.5 to 1.2"
        )
    return float(beta)


def deficit(reference: Tensor, evidence: Tensor) -> Tensor:
    """How far the evidence falls short of the reference: max(b - DMRR, 0)."""
    return (reference - evidence).clamp_min(0.0)


def spread(values: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """Lay values of the registered tokens (..., R) out over the vocabulary (..., V), zero elsewhere."""
    laid_out = values.new_zeros(*values.shape[:-1], vocab_size)
    return laid_out.index_copy_(-1, tokens, values)


@dataclass(frozen=True, slots=True)
class EditedStep:
    """One edited step.

    Attributes:
        logits: z' (B, V) in float32.
        candidates: Candidates (n, C) of the n rows that were edited.
        shifts: What each candidate lost (n, C), zero outside the candidate set.
    """

    logits: Tensor
    candidates: Candidates
    shifts: Tensor


def edit_step(
    logits: Tensor, strengths: Tensor, beta: float | Tensor, *, rows: Tensor | None = None
) -> EditedStep:
    """Subtract beta s_I(v) from the raw logits of each row's candidates.

    Args:
        logits: Raw next-token logits (B, V).
        strengths: s_I (n, V), zero where a token is not registered.
        beta: Maximum penalty, one for all or one for each of the n rows.
        rows: The n rows of the batch to edit, ascending; all if not given. Nothing of the others is looked at.
    """
    betas = beta if isinstance(beta, Tensor) else torch.full((len(strengths),), beta, device=logits.device)
    needs_gradient = logits.requires_grad and torch.is_grad_enabled()
    if logits.device.type == "cpu" and is_compiled() and not needs_gradient:
        return _edit_compiled(logits.detach(), strengths, betas, rows)
    own = logits if rows is None else logits[rows]
    chosen = candidates(own)
    shifts = strengths.gather(1, chosen.ids) * chosen.keep * betas[:, None]
    edited = _own_copy(own).scatter_(1, chosen.ids, chosen.logits - shifts)
    if rows is not None:
        edited = _own_copy(logits).index_copy_(0, rows, edited)
    return EditedStep(edited, chosen, shifts)


def _own_copy(logits: Tensor) -> Tensor:
    """The logits in float32, in memory of their own: a hook of the user's may have kept the model's."""
    own = logits.float()
    return own.clone() if own.data_ptr() == logits.data_ptr() else own


def _edit_compiled(logits: Tensor, strengths: Tensor, betas: Tensor, rows: Tensor | None) -> EditedStep:
    """The same in one compiled call, with the same bits."""
    edited = _own_copy(logits).contiguous()
    probability = probabilities(edited)
    count, width = len(strengths), min(MOST, edited.shape[1])
    ids = torch.empty(count, width, dtype=torch.int64)
    keep = torch.empty(count, width, dtype=torch.bool)
    best, shifts = torch.empty(2, count, width)
    bad = _edit_rows()(
        edited.numpy(),
        probability.numpy(),
        (_every_row(count) if rows is None else rows).numpy(),
        strengths.numpy(),
        betas.numpy(),
        MASS,
        LEAST,
        best.numpy(),
        ids.numpy(),
        keep.numpy(),
        shifts.numpy(),
    )
    if bad >= 0:
        raise no_distribution(logits if rows is None else logits[rows])
    return EditedStep(edited, Candidates(ids, keep, best, torch.ones(count, dtype=torch.bool)), shifts)


@cache
def _every_row(count: int) -> Tensor:
    return torch.arange(count)


@cache
def _edit_rows() -> Any:
    from reweigh.method.intervene.edit_compiled import edit_rows

    return edit_rows
