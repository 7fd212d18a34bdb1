"""One decoding step: its candidates, and the bounded edit of their logits (Eq. shift).

The candidates are the tokens that hold most of the next-token probability: ordered by (logit descending, token id
ascending), the shortest prefix whose softmax mass over the whole vocabulary reaches ``mass``, within ``least`` and
``most``. Calibration and inference share this rule. The edit is z'(v) = z(v) - beta s_I(v) for candidates, z(v) for all
others.

Batched, with a beta for each row. One chain of torch operations serves every device; it works on the 50 best of each row,
holds at most 12 bytes a logit beyond the logits given, never waits for an accelerator and never writes into its input.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import InputError, NumericsError

MASS = 0.9
LEAST = 2
MOST = 50
UNITS = 2**60
"""Probabilities are summed as integer multiples of 1 / UNITS; an int64 holds their sum."""

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)

MOST_BETA = torch.finfo(torch.float32).max
"""A larger beta overflows float32, and inf * 0 is NaN."""


class Candidates(NamedTuple):
    """Candidates of B rows; width K = min(most, V).

    A row whose logits form no distribution (NaN, +inf, all -inf) is refused on the CPU. On an accelerator, where checking
    would wait for the device, its ``sound`` is False and its ``keep`` empty.

    Attributes:
        ids: Token ids, int64 (B, K), best first.
        keep: Which of them are candidates, bool (B, K); a prefix of each row.
        logits: Their raw logits, float32 (B, K).
        sound: Rows whose logits form a distribution, bool (B,); ``None`` on the CPU, where all do.
    """

    ids: Tensor
    keep: Tensor
    logits: Tensor
    sound: Tensor | None = None


def candidates(logits: Tensor, *, mass: float = MASS, least: int = LEAST, most: int = MOST) -> Candidates:
    """Find the candidates of raw next-token ``logits`` (B, V), each row by itself, bit for bit.

    >>> found = candidates(torch.tensor([[1.0, 3.0, 3.0, -9.0]]))
    >>> found.ids[found.keep].tolist()
    [1, 2]
    """
    is_cpu = logits.is_cpu
    if logits.ndim != 2 or not logits.shape[1] or not logits.is_floating_point():
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; floats (B, V) were expected"
        )
    if not (0 < mass <= 1 and 1 <= least <= most):
        raise InputError(
            f"mass {mass}, least {least}, most {most}: need 0 < mass <= 1 and 1 <= least <= most"
        )
    if not is_cpu and logits.device.type == "mps":  # some of its releases sort integers wrongly
        found = candidates(logits.cpu(), mass=mass, least=least, most=most)
        return Candidates(*(part.to(logits.device) for part in (found.ids, found.keep, found.logits)))
    own = logits.detach() if logits.requires_grad else logits
    width, enough = min(most, own.shape[1]), math.ceil(mass * UNITS)
    best, ids = own.topk(min(width + 1, own.shape[1]), dim=1)
    probability = own.softmax(-1, torch.float32).gather(1, ids)
    seen = probability.tolist() if is_cpu else None  # elsewhere, reading a value waits for the device
    if seen is not None and not all(row[0] > 0 for row in seen):
        raise no_distribution(logits)
    if seen is not None and all(len(set(row)) == len(row) for row in seen):  # no two logits are equal
        best, ids = best[:, :width].float(), ids[:, :width]
    else:  # equal logits are equally probable, so their order leaves the probabilities as they are
        ids = _order_ties(own, best[:, :width], ids[:, :width])
        best = own.gather(1, ids).float()
    # a token is needed while the mass of those before it falls short; masses are integers, whose sums are exact
    if seen is not None:  # adding up a few numbers is faster than calling operators
        masks, kept = _prefixes(width), []
        for row in seen:
            count = total = 0
            while count < width and (count < least or total < enough):
                total += int(row[count] * UNITS)
                count += 1
            kept.append(masks[count])
        keep = kept[0] if len(kept) == 1 else torch.cat([masks[0][:0], *kept])
        return Candidates(ids, keep, best)
    # CUDA's cumulative sum of floats would depend on timing and raise in deterministic mode
    units = (probability[:, :width] * UNITS).long()
    keep = units.cumsum(dim=1) - units < enough
    keep[:, :least] = True
    sound = probability[:, 0] > 0
    return Candidates(ids, keep & sound[:, None], best, sound)


@functools.cache
def _prefixes(width: int) -> tuple[Tensor, ...]:
    """Return masks (1, ``width``) of the first 0 to ``width`` places: making one costs as much as a sort. Read-only."""
    return torch.split(torch.arange(width) < torch.arange(width + 1)[:, None], 1)


def _order_ties(logits: Tensor, best: Tensor, ids: Tensor) -> Tensor:
    """Return the tokens of a row's best values in the rule's order; ``topk`` leaves equal logits in any order."""
    vocab, width = logits.shape[1], best.shape[1]
    last = best[:, -1:]
    above = best > last
    # of the tokens that equal the last value, the lowest ids take the places that are left
    keys = torch.arange(vocab, 0, -1, dtype=torch.int32, device=logits.device)
    lowest = vocab - torch.where(logits == last, keys, 0).topk(width, dim=1).values.long()
    place = torch.arange(width, device=logits.device) - above.sum(dim=1, keepdim=True)
    equal = lowest.gather(1, place.clamp_min(0)).clamp_max(vocab - 1)  # a row of NaN equals nothing
    ids = torch.where(above, ids, equal).sort(dim=1).values
    values = logits.gather(1, ids) + 0.0  # -0 becomes +0, which it equals
    return ids.gather(1, values.sort(dim=1, descending=True, stable=True).indices)


def no_distribution(logits: Tensor) -> NumericsError:
    """Describe the rows of ``logits`` (B, V) that form no distribution, by the first of them."""
    sound = torch.softmax(logits, dim=-1, dtype=torch.float32).amax(dim=1) > 0
    rows = (~sound).nonzero().flatten().tolist()
    bad = logits[rows[0]]
    return NumericsError(
        f"next-token logits of row {rows[0]} ({len(rows)} of {logits.shape[0]} rows) form no distribution: "
        f"{int(torch.isnan(bad).sum())} NaN, {int((bad == float('inf')).sum())} +inf, "
        f"{int((bad == float('-inf')).sum())} -inf of {bad.numel()}",
        hint="check the weights and the dtype; float16 overflows in some models",
    )


def check_beta(beta: Any) -> float:
    """Return a maximum penalty that is not negative, and finite in float32."""
    value: Any = beta
    if isinstance(beta, bool) or not isinstance(beta, Real) or not 0 <= value <= MOST_BETA:
        raise InputError(
            f"beta is {beta!r}; it must be a finite number >= 0", hint="the paper uses 0.5 to 1.2"
        )
    return float(beta)


def check_betas(beta: Any) -> float | tuple[float, ...]:
    """Return one maximum penalty, or one for each row of a list, an array or a tensor."""
    given = beta.tolist() if isinstance(beta, np.ndarray | Tensor) else beta
    if isinstance(given, Sequence) and not isinstance(given, str | bytes):
        return tuple(map(check_beta, given))
    return check_beta(given)


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


class StepEditor:
    """Subtracts beta s_I(v) from the raw logits of each row's candidates, for many steps of the same rows.

    What does not change between steps is checked once. Impossible numbers are refused; on an accelerator, whose values are
    not read, only impossible shapes are.

    Args:
        strengths: s_I (n, V), zero where a token is not registered.
        betas: Maximum penalty, one for all or one for each of the n rows.
        rows: The n rows of the batch to edit, ascending; all if not given. The others are not looked at.

    >>> editor = StepEditor(torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor(1.1))
    >>> [round(z, 1) for z in editor(torch.tensor([[3.0, 2.9, -9.0]]))[0].tolist()]
    [1.9, 2.9, -9.0]
    """

    def __init__(self, strengths: Tensor, betas: Tensor, rows: Tensor | None = None) -> None:
        if strengths.ndim != 2 or not strengths.shape[1]:
            raise InputError(f"strengths are {_seen(strengths)}; (rows, vocabulary) was expected")
        count = len(strengths)
        if betas.ndim > 1 or betas.numel() not in (1, count):
            raise InputError(
                f"betas {_seen(betas)} were given for {count} rows",
                hint="pass one number, or one for each row",
            )
        if rows is not None and (rows.ndim != 1 or len(rows) != count or rows.dtype not in INTEGERS):
            raise InputError(
                f"rows are {_seen(rows)} for strengths of {count} rows",
                hint="pass the number of each row to edit, as integers",
            )
        if strengths.is_cpu:  # elsewhere, reading values would wait for the device
            if not strengths.isfinite().all():
                raise NumericsError(
                    f"{int((~strengths.isfinite()).sum())} of {strengths.numel()} strengths are not finite",
                    hint="check the evidence and the references that they were made of",
                )
            if rows is not None and count and (int(rows[0]) < 0 or bool((rows[1:] <= rows[:-1]).any())):
                raise InputError(f"rows are {rows.tolist()}; they must ascend from 0 or more, each once")
        self.strengths = strengths.float()
        self.betas = betas.float().expand(count)
        self.rows = None if rows is None else rows.long()
        self._penalty = self.betas[:, None]
        self._sound: Tensor | None = None
        self._checked: Any = None  # shape, type and device of logits that fit

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the edited logits of one step, in float32."""
        return self.step(logits).logits

    def step(self, logits: Tensor) -> EditedStep:
        """Edit logits (B, V); return them with the candidates and shifts."""
        if (logits.shape, logits.dtype, logits.device) != self._checked:
            self._check_logits(logits)
        chosen = candidates(logits if self.rows is None else logits[self.rows])
        shifts = self.strengths.gather(1, chosen.ids).mul_(chosen.keep).mul_(self._penalty)
        # into memory of its own: a hook of the user's may have kept the model's logits
        if self.rows is not None:
            place = (self.rows[:, None], chosen.ids)
            edited = logits.float().index_put(place, chosen.logits - shifts)
        else:
            edited = logits.float().scatter(1, chosen.ids, chosen.logits - shifts)
        if chosen.sound is not None:
            self._sound = chosen.sound if self._sound is None else self._sound & chosen.sound
        return EditedStep(edited, chosen, shifts)

    def require_sound(self) -> None:
        """Refuse past steps on an accelerator whose logits formed no distribution; waits for the device.

        On the CPU such a step is refused at once.
        """
        if self._sound is None:
            return
        if rows := self._sound.logical_not().nonzero().flatten().tolist():
            raise NumericsError(
                f"next-token logits of {len(rows)} rows (the first is row {rows[0]} of those edited) formed no "
                "distribution at some step",
                hint="check the weights and the dtype; float16 overflows in some models",
            )

    def _check_logits(self, logits: Tensor) -> None:
        """Refuse logits of other rows, another vocabulary or another device than the strengths'."""
        count, vocabulary = self.strengths.shape
        if self.rows is None:
            fits = len(logits) == count
        else:  # on an accelerator indexing refuses rows that are not there
            fits = not (self.rows.is_cpu and count) or len(logits) > int(self.rows[-1])
        if not (
            logits.ndim == 2
            and fits
            and logits.shape[1] == vocabulary
            and logits.is_floating_point()
            and logits.device == self.strengths.device
        ):
            raise InputError(
                f"logits {_seen(logits)} do not belong to strengths {_seen(self.strengths)}",
                hint="were the model's embeddings resized? attach again, with a table of the model as it is",
            )
        self._checked = logits.shape, logits.dtype, logits.device


def _seen(tensor: Tensor) -> str:
    """Describe a tensor for a message."""
    kind = str(tensor.dtype).removeprefix("torch.")
    return f"{tuple(tensor.shape)} of {kind} on {tensor.device}"
