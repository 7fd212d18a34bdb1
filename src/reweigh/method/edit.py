"""The bounded edit (Eq. shift), as one pure step: z'(v) = z(v) - beta s_I(v) for candidates, z(v) for all others.

To be read beside the paper. Batched, with a beta for each row; never waits for an accelerator and never writes into
the logits it is given. Knows nothing of engines: whoever holds logits and strengths can call it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import InputError, NumericsError
from reweigh.method.candidates import (
    LEAST,
    MASS,
    MOST,
    Candidates,
    candidates,
    is_compiled,
    no_distribution,
    probabilities,
)

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)

MOST_BETA = torch.finfo(torch.float32).max
"""Edits are float32: beyond this beta would be infinite there, and a penalty of nothing not a number."""


def check_beta(beta: Any) -> float:
    """The maximum penalty: not negative, and finite in float32."""
    value: Any = beta
    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0 <= value <= MOST_BETA:
        raise InputError(
            f"beta is {beta!r}; it must be a finite number >= 0", hint="the paper uses 0.5 to 1.2"
        )
    return float(beta)


def check_betas(beta: Any) -> float | tuple[float, ...]:
    """One maximum penalty, or one for each row in a list, an array or a tensor."""
    given = beta.tolist() if isinstance(beta, np.ndarray | Tensor) else beta
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return tuple(map(check_beta, given))
    return check_beta(given)


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
    logits: Tensor,
    strengths: Tensor,
    beta: float | Sequence[float] | Tensor,
    *,
    rows: Tensor | Sequence[int] | None = None,
) -> EditedStep:
    """Subtract beta s_I(v) from the raw logits of each row's candidates.

    Numbers that cannot be right are refused, on the CPU by their values too; an accelerator is never waited for.

    Args:
        logits: Raw next-token logits (B, V).
        strengths: s_I (n, V), zero where a token is not registered.
        beta: Maximum penalty, one for all or one for each of the n rows.
        rows: The n rows of the batch to edit, ascending; all if not given. Nothing of the others is looked at.

    >>> step = edit_step(torch.tensor([[3.0, 2.9, -9.0]]), torch.tensor([[1.0, 0.0, 0.0]]), 1.1)
    >>> [round(z, 1) for z in step.logits[0].tolist()]
    [1.9, 2.9, -9.0]
    """
    _check_tensors(logits, strengths)
    device = strengths.device
    betas = beta if isinstance(beta, Tensor) else torch.tensor(check_betas(beta), device=device)
    chosen = rows if rows is None or isinstance(rows, Tensor) else torch.tensor(rows, device=device)
    return StepEditor(strengths, betas, chosen).step(logits)


class StepEditor:
    """``edit_step`` for many steps of the same rows: what does not change is checked and laid out once."""

    def __init__(self, strengths: Tensor, betas: Tensor, rows: Tensor | None = None) -> None:
        _check_layout(strengths, betas, rows)
        self.strengths = strengths.float()
        self.rows = None if rows is None else rows.long()
        count, self._vocabulary = strengths.shape
        self.betas = betas.float().expand(count)
        self._on_cpu = strengths.is_cpu
        self._least = self._most = count * self._vocabulary  # how many numbers logits must hold
        if self.rows is not None:
            last = int(self.rows[-1]) if self._on_cpu and count else -1  # elsewhere indexing will notice
            self._least, self._most = (last + 1) * self._vocabulary, sys.maxsize
        learns = strengths.requires_grad or betas.requires_grad
        self._compiled = self._on_cpu and count > 0 and not learns and is_compiled()
        if self._compiled:
            self._width = min(MOST, self._vocabulary)
            own_rows = torch.arange(count) if self.rows is None else self.rows.contiguous()
            self._tensors = (own_rows, self.strengths.contiguous(), self.betas.contiguous())
            # by address: on a small model each view of a tensor costs as much as the arithmetic
            addresses = (tensor.data_ptr() for tensor in self._tensors)
            self._fixed = (*addresses, count, self._vocabulary, MASS, LEAST, self._width)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, such as that of a key-value cache makes, has addresses of its own."""
        return StepEditor, (self.strengths, self.betas, self.rows)

    def __call__(self, logits: Tensor) -> Tensor:
        """The edited logits of one step, in float32; as (B, V) or, with a column of their own, (B, 1, V)."""
        self._check_logits(logits)
        if not self._compiled or (logits.requires_grad and torch.is_grad_enabled()):
            return self.step(logits.reshape(-1, self._vocabulary)).logits.view(logits.shape)
        raw = logits if logits.is_contiguous() else logits.contiguous()
        raw = raw.float()
        edited = probabilities(raw)  # until the compiled step puts the edited logits in their place
        total = edited.numel() // self._vocabulary
        edit_logits, _ = _compiled_edits()
        if edit_logits(raw.data_ptr(), edited.data_ptr(), total, *self._fixed) >= 0:
            raise self._no_distribution(logits.reshape(-1, self._vocabulary))
        return edited

    def step(self, logits: Tensor) -> EditedStep:
        """The same of logits (B, V), with candidates and shifts."""
        self._check_logits(logits)
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

    def _check_logits(self, logits: Tensor) -> None:
        """Other logits would be edited in the wrong places, by address even beyond their end."""
        if not (
            logits.shape[-1] == self._vocabulary
            and self._least <= logits.numel() <= self._most
            and logits.is_floating_point()
            and logits.is_cpu is self._on_cpu
        ):
            raise InputError(
                f"logits {_seen(logits)} do not belong to strengths {_seen(self.strengths)}",
                hint="were the model's embeddings resized? attach again, with a table of the model as it is",
            )

    def _no_distribution(self, logits: Tensor) -> NumericsError:
        return no_distribution(logits if self.rows is None else logits[self.rows])


def _check_tensors(logits: Any, strengths: Any) -> None:
    """Refuse what a notebook may hand over in place of tensors (rows, vocabulary)."""
    for name, given in (("logits", logits), ("strengths", strengths)):
        if not isinstance(given, Tensor) or given.ndim != 2:
            seen = _seen(given) if isinstance(given, Tensor) else f"a {type(given).__name__}"
            raise InputError(f"{name} are {seen}; a tensor (rows, vocabulary) was expected")


def _check_layout(strengths: Tensor, betas: Tensor, rows: Tensor | None) -> None:
    """Refuse strengths, penalties and rows that do not go together or hold impossible numbers."""
    if strengths.ndim != 2 or not strengths.shape[1]:
        raise InputError(f"strengths are {_seen(strengths)}; (rows, vocabulary) was expected")
    count = len(strengths)
    if betas.ndim > 1 or betas.numel() not in (1, count):
        raise InputError(
            f"betas {_seen(betas)} were given for {count} rows", hint="give one number, or one for each row"
        )
    if rows is not None and (rows.ndim != 1 or len(rows) != count or rows.dtype not in INTEGERS):
        raise InputError(
            f"rows are {_seen(rows)} for strengths of {count} rows",
            hint="give the number of each row to edit, as integers",
        )
    if strengths.is_cpu:
        _check_values(strengths, betas, rows)


def _check_values(strengths: Tensor, betas: Tensor, rows: Tensor | None) -> None:
    if not strengths.isfinite().all():
        raise NumericsError(
            f"{int((~strengths.isfinite()).sum())} of {strengths.numel()} strengths are no finite numbers",
            hint="check the evidence and the references that they were made of",
        )
    check_betas(betas)
    if rows is not None and len(rows) and (int(rows[0]) < 0 or bool((rows[1:] <= rows[:-1]).any())):
        raise InputError(f"rows are {rows.tolist()}; they must ascend from 0 or more, each once")


def _seen(tensor: Tensor) -> str:
    """A tensor as messages name it."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{tuple(tensor.shape)} of {kind} on {tensor.device}"


def _own_copy(logits: Tensor) -> Tensor:
    """The logits in float32, in memory of their own: a hook of the user's may have kept the model's."""
    return logits.clone() if logits.dtype is torch.float32 else logits.float()


@cache
def _compiled_edits() -> tuple[Any, Any]:
    from reweigh.method.edit_compiled import edit_logits, edit_rows

    return edit_logits, edit_rows
