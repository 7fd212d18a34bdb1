"""The bounded edit (Eq. shift), as one pure step: z'(v) = z(v) - beta s_I(v) for candidates, z(v) for all others.

To be read beside the paper. Batched, with a beta for each row; never waits for an accelerator and never writes into
the logits it is given. Knows nothing of engines: whoever holds logits and strengths can call it.
"""

from __future__ import annotations

import math
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import InputError, NumericsError
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


class EditedStep(NamedTuple):
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

    >>> step = edit_step(torch.tensor([[3.0, 2.9, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]), 1.1)
    >>> [round(z, 1) for z in step.logits[0].tolist()]
    [1.9, 2.9, -9.0]
    """
    betas = beta if isinstance(beta, Tensor) else torch.full((len(strengths),), beta, device=logits.device)
    return StepEditor(strengths, betas, rows).step(logits)


class StepEditor:
    """``edit_step`` for many steps of the same rows: what does not change is laid out once."""

    def __init__(self, strengths: Tensor, betas: Tensor, rows: Tensor | None = None) -> None:
        self.strengths = strengths
        self.betas = betas
        self.rows = rows
        count, self._vocabulary = strengths.shape
        self._least_rows = count if rows is None else 0  # of given rows, as many as indexing needs
        self._compiled = strengths.device.type == "cpu" and is_compiled()
        if self._compiled:
            self._width = min(MOST, self._vocabulary)
            own_rows = torch.arange(count) if rows is None else rows.long().contiguous()
            own_betas = betas.float().expand(count).contiguous()
            self._tensors = (own_rows, strengths.float().contiguous(), own_betas)
            self._least_rows = int(own_rows.max()) + 1 if count else 0  # by address nobody else would notice
            # by address: on a small model each view of a tensor costs as much as the arithmetic
            addresses = (tensor.data_ptr() for tensor in self._tensors)
            self._fixed = (*addresses, count, self._vocabulary, MASS, LEAST, self._width)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, such as that of a key-value cache makes, has addresses of its own."""
        return StepEditor, (self.strengths, self.betas, self.rows)

    def __call__(self, logits: Tensor) -> Tensor:
        """The edited logits of one step, in float32; as (B, V) or, with a column of their own, (B, 1, V)."""
        if not self._compiled or (logits.requires_grad and torch.is_grad_enabled()):
            return self.step(logits.flatten(0, -2)).logits.view(logits.shape)
        self._check_shape(logits)
        edited = _own_copy(logits)
        if not edited.is_contiguous():
            edited = edited.contiguous()
        probability = probabilities(edited)
        edit_logits, _ = _compiled_edits()
        if edit_logits(edited.data_ptr(), probability.data_ptr(), *self._fixed) >= 0:
            raise self._no_distribution(logits.flatten(0, -2))
        return edited

    def step(self, logits: Tensor) -> EditedStep:
        """The same, with candidates and shifts."""
        self._check_shape(logits)
        if self._compiled and not (logits.requires_grad and torch.is_grad_enabled()):
            return self._compiled_step(logits)
        own = logits if self.rows is None else logits[self.rows]
        chosen = candidates(own)
        shifts = self.strengths.gather(1, chosen.ids) * chosen.keep * self.betas[:, None]
        edited = _own_copy(own).scatter_(1, chosen.ids, chosen.logits - shifts)
        if self.rows is not None:
            edited = _own_copy(logits).index_copy_(0, self.rows, edited)
        return EditedStep(edited, chosen, shifts)

    def _compiled_step(self, logits: Tensor) -> EditedStep:
        """The same in one compiled call, with the same bits."""
        edited = _own_copy(logits).contiguous()
        shape = (len(self.strengths), self._width)
        ids, keep = np.empty(shape, np.int64), np.empty(shape, np.bool_)
        values = np.empty((2, *shape), np.float32)
        _, edit_rows = _compiled_edits()
        arrays = [tensor.numpy() for tensor in (edited, probabilities(edited), *self._tensors)]
        if edit_rows(*arrays, MASS, LEAST, ids, keep, values) >= 0:
            raise self._no_distribution(logits)
        best, shifts = torch.from_numpy(values)
        sound = torch.ones(len(best), dtype=torch.bool)
        chosen = Candidates(torch.from_numpy(ids), torch.from_numpy(keep), best, sound)
        return EditedStep(edited, chosen, shifts)

    def _check_shape(self, logits: Tensor) -> None:
        """Logits of another width would be edited in the wrong places, by address even beyond their end."""
        if logits.shape[-1] != self._vocabulary or len(logits) < self._least_rows:
            raise InputError(
                f"logits {tuple(logits.shape)} do not belong to strengths {tuple(self.strengths.shape)}",
                hint="were the model's embeddings resized? attach again, with a table of the model as it is",
            )

    def _no_distribution(self, logits: Tensor) -> NumericsError:
        return no_distribution(logits if self.rows is None else logits[self.rows])


def _own_copy(logits: Tensor) -> Tensor:
    """The logits in float32, in memory of their own: a hook of the user's may have kept the model's."""
    return logits.clone() if logits.dtype is torch.float32 else logits.float()


@cache
def _compiled_edits() -> tuple[Any, Any]:
    from reweigh.method.intervene.edit_compiled import edit_logits, edit_rows

    return edit_logits, edit_rows
