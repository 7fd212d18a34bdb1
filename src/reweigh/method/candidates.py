"""The candidates of a decoding step: the tokens that hold most of the next-token probability.

Tokens are ordered by (logit descending, token id ascending); the candidates are the shortest prefix whose
softmax mass over the whole vocabulary reaches ``mass``, within ``least`` and ``most``. Calibration and
inference share this rule. Knows nothing of evidence. No full sort; no host synchronisation on accelerators, but for MPS,
whose rows are copied to the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import InputError, NumericsError
from reweigh.method.kernels import choose_kernel

MASS = 0.9
LEAST = 2
MOST = 50
UNITS = 2**60
"""Parts of a probability on accelerators; an int64 holds their sum."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of B rows; width K = min(most, V).

    ``keep`` is a prefix of each row. A row whose logits form no distribution (NaN, +inf, all -inf) is refused
    on the CPU; an accelerator could not without synchronising: there ``sound`` is False and ``keep`` empty.
    """

    ids: Tensor
    """Token ids, int64 (B, K), best first."""
    keep: Tensor
    """Which of them are candidates, bool (B, K)."""
    logits: Tensor
    """Their raw logits, float32 (B, K)."""
    sound: Tensor
    """Rows whose probabilities are finite, bool (B,)."""


def candidates(logits: Tensor, *, mass: float = MASS, least: int = LEAST, most: int = MOST) -> Candidates:
    """Find the candidates of raw next-token ``logits`` (B, V), each row by itself, bit for bit."""
    if logits.ndim != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; floats (B, V) were expected"
        )
    if not (0 < mass <= 1 and 1 <= least <= most):
        raise InputError(
            f"mass {mass}, least {least}, most {most}: need 0 < mass <= 1 and 1 <= least <= most"
        )
    if logits.device.type == "mps":  # some of its releases sort 64-bit integers, our keys, wrongly
        found = candidates(logits.cpu(), mass=mass, least=least, most=most)
        return Candidates(
            *(part.to(logits.device) for part in (found.ids, found.keep, found.logits, found.sound))
        )
    if logits.device.type != "cpu":
        find = _on_accelerator
    else:
        find = _on_cpu_compiled if is_compiled() else _on_cpu
    return find(logits.detach(), min(most, logits.shape[1]), mass, least)


def _on_accelerator(logits: Tensor, width: int, mass: float, least: int) -> Candidates:
    """One chain of device operations, whatever the values are.

    Masses are added as integers: CUDA's cumulative sum of floats depends on timing, so that it raises under
    ``torch.use_deterministic_algorithms``. A part is cut below 2**-60, less than float64 loses in the same sum.
    """
    best, ids = _best_by_key(logits, width)
    probability = probabilities(logits).gather(1, ids)
    sound = probability[:, 0] > 0
    reached = (probability * UNITS).long().cumsum(dim=1)  # a power of two: the product is exact
    needed = math.ceil(mass * UNITS)
    keep = sound[:, None].repeat(1, width)
    # a token is needed while those before it fall short
    keep[:, least:] &= reached[:, least - 1 : -1] < needed
    return Candidates(ids=ids, keep=keep, logits=best, sound=sound)


def _on_cpu(logits: Tensor, width: int, mass: float, least: int) -> Candidates:
    """The same with branches, which are free here, and NumPy on the few numbers that are left after ``topk``."""
    best, ids = _best_by_topk(logits, width)
    reached = np.cumsum(probabilities(logits).gather(1, ids).numpy(), axis=1, dtype=np.float64)
    sound = reached[:, 0] > 0
    if not sound.all():
        raise no_distribution(logits)
    keep = np.ones(ids.shape, dtype=np.bool_)
    keep[:, least:] = reached[:, least - 1 : -1] < mass
    return Candidates(ids=ids, keep=torch.from_numpy(keep), logits=best, sound=torch.from_numpy(sound))


def _on_cpu_compiled(logits: Tensor, width: int, mass: float, least: int) -> Candidates:
    """The same in one compiled call, with the same bits."""
    plain = logits.float().contiguous()
    best, ids = torch.empty(len(plain), width), torch.empty(len(plain), width, dtype=torch.int64)
    keep = torch.empty(len(plain), width, dtype=torch.bool)
    outputs = (best.numpy(), ids.numpy(), keep.numpy())
    bad = _best_rows()(plain.numpy(), probabilities(plain).numpy(), mass, least, *outputs)
    if bad >= 0:
        raise no_distribution(logits)
    return Candidates(ids=ids, keep=keep, logits=best, sound=torch.ones(len(plain), dtype=torch.bool))


@cache
def is_compiled() -> bool:
    """Whether the compiled rule serves the CPU: numba is here and no other kernel is forced."""
    return choose_kernel("auto", torch.device("cpu"), torch.float32).name == "numba"


@cache
def _best_rows() -> Any:
    from reweigh.method.candidates_compiled import best_rows

    return best_rows


def probabilities(logits: Tensor) -> Tensor:
    """Float32 softmax, which reduces each row by itself; a log-sum-exp of one row may be split among threads."""
    return torch.softmax(logits, dim=-1, dtype=torch.float32)


def _best_by_topk(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` best of each row; ``topk`` leaves ties in any order, so they are ordered again."""
    best, ids = (part.numpy() for part in torch.topk(logits.float(), min(width + 1, logits.shape[1]), dim=1))
    tied = best[:, 1:] == best[:, :-1]
    if tied.any():
        order = np.lexsort((ids, -best))
        best, ids = np.take_along_axis(best, order, axis=1), np.take_along_axis(ids, order, axis=1)
        if ids.shape[1] > width:  # a tie across the last place: topk may have left out a lower token id
            for row in np.flatnonzero(tied[:, -1]):
                least = best[row, width]
                above = int(np.searchsorted(-best[row], -least))
                equal = torch.nonzero(logits[row] == float(least))[: width - above, 0]
                ids[row, above:width] = equal.numpy()
    return torch.from_numpy(best[:, :width]), torch.from_numpy(ids[:, :width])


def _best_by_key(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` best of each row through distinct integer keys, which leave ``topk`` no choice."""
    tokens = torch.arange(logits.shape[1], device=logits.device).expand(logits.shape)
    ids = 0x7FFFFFFF - (torch.topk(_keys(logits, tokens), width, dim=1).values & 0x7FFFFFFF)
    return logits.gather(1, ids).float(), ids


def _keys(logits: Tensor, ids: Tensor) -> Tensor:
    """Int64 keys ordered by (logit, then lower token id): the value's bits above, the id's complement below."""
    bits = (logits.float() + 0.0).view(torch.int32).long()  # adding zero folds -0 into +0
    bits = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits << 31) | (0x7FFFFFFF - ids)


def no_distribution(logits: Tensor) -> NumericsError:
    """Describe the rows of ``logits`` (B, V) that form no distribution, by the first of them."""
    sound = probabilities(logits).amax(dim=1) > 0
    rows = (~sound).nonzero().flatten().tolist()
    bad = logits[rows[0]]
    return NumericsError(
        f"next-token logits of row {rows[0]} ({len(rows)} of {logits.shape[0]} rows) form no distribution: "
        f"{int(torch.isnan(bad).sum())} NaN, {int((bad == float('inf')).sum())} +inf, "
        f"{int((bad == float('-inf')).sum())} -inf of {bad.numel()}",
        hint="check the weights and the dtype; float16 overflows in some models",
    )
