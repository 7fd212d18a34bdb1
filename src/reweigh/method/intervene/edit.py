"""Suppression strength and the bounded edit (Eqs. suppression-strength, shift), as pure functions.

To be read beside the paper: s_I(v) = clip((b(v) - DMRR_I(v)) / b0, 0, 1) for registered tokens, 0 otherwise, and
z'(v) = z(v) - beta s_I(v) for candidates. Batched, no host synchronisation, no copy of the logits where none is needed.
"""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.register.candidates import Candidates


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


def strength(reference: Tensor, evidence: Tensor, scale: float) -> Tensor:
    """s = clip((b - DMRR) / b0, 0, 1) in float32."""
    return ((reference - evidence) / scale).clamp(0.0, 1.0)


def spread(values: Tensor, tokens: Tensor, vocab_size: int) -> Tensor:
    """Lay values of the registered tokens (..., R) out over the vocabulary (..., V), zero elsewhere."""
    laid_out = values.new_zeros(*values.shape[:-1], vocab_size)
    return laid_out.index_copy_(-1, tokens, values)


def shifts(chosen: Candidates, strengths: Tensor, beta: float) -> Tensor:
    """beta s_I(v) of each candidate (B, C), zero for tokens outside the candidate set; ``strengths`` is (B, V)."""
    return strengths.gather(1, chosen.ids) * chosen.keep * beta


def edit(logits: Tensor, chosen: Candidates, shift: Tensor) -> Tensor:
    """z' = z - shift in float32, in place where the logits are float32 and nobody needs their gradient."""
    return _writable(logits).scatter_(1, chosen.ids, chosen.logits - shift)


def put_rows(logits: Tensor, rows: Tensor, edited: Tensor) -> Tensor:
    """The logits (B, V) in float32 with some rows replaced; the others are as they were. In place as ``edit`` is."""
    return _writable(logits).index_copy_(0, rows, edited)


def _writable(logits: Tensor) -> Tensor:
    own = logits.float()
    needed = own is logits and torch.is_grad_enabled() and logits.requires_grad
    return logits.clone() if needed else own
