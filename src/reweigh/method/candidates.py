"""The candidates of a decoding step: the tokens that hold most of the next-token probability.

Tokens are ordered by (logit descending, token id ascending); the candidates are the shortest prefix whose
softmax mass over the whole vocabulary reaches ``mass``, within ``least`` and ``most``. Calibration and
inference share this rule. One chain of torch operations serves every device; only the CPU, where reading a
value costs nothing, skips what a step does not need. MPS rows are copied to the CPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.errors import InputError, NumericsError

MASS = 0.9
LEAST = 2
MOST = 50
UNITS = 2**60
"""Probabilities are summed as integer multiples of 1 / UNITS; an int64 holds their sum."""


@dataclass(frozen=True)
class Candidates:
    """Candidates of B rows; width K = min(most, V).

    ``keep`` is a prefix of each row. A row whose logits form no distribution (NaN, +inf, all -inf) is refused
    on the CPU. On an accelerator, where looking would wait for the device, its ``sound`` is False and its
    ``keep`` empty.
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
    """Find the candidates of raw next-token ``logits`` (B, V), each row by itself, bit for bit.

    >>> found = candidates(torch.tensor([[1.0, 3.0, 3.0, -9.0]]))
    >>> found.ids[found.keep].tolist()
    [1, 2]
    """
    if logits.ndim != 2 or logits.shape[1] == 0 or not logits.is_floating_point():
        raise InputError(
            f"logits are {logits.dtype} of shape {tuple(logits.shape)}; floats (B, V) were expected"
        )
    if not (0 < mass <= 1 and 1 <= least <= most):
        raise InputError(
            f"mass {mass}, least {least}, most {most}: need 0 < mass <= 1 and 1 <= least <= most"
        )
    if logits.device.type == "mps":  # some of its releases sort integers wrongly
        found = candidates(logits.cpu(), mass=mass, least=least, most=most)
        return Candidates(
            *(part.to(logits.device) for part in (found.ids, found.keep, found.logits, found.sound))
        )
    own = logits.detach()
    best, ids = _best(own, min(most, own.shape[1]))
    probability = torch.softmax(own, dim=-1, dtype=torch.float32).gather(1, ids)
    sound = probability[:, 0] > 0
    if _can_look(sound) and not sound.all():
        raise no_distribution(logits)
    # in integers: CUDA's cumulative sum of floats depends on timing and raises in deterministic mode
    units = (probability * UNITS).long()
    before = units.cumsum(dim=1) - units
    keep = before < math.ceil(mass * UNITS)  # a token is needed while those before it fall short
    keep[:, :least] = True
    return Candidates(ids=ids, keep=keep & sound[:, None], logits=best, sound=sound)


def _can_look(tensor: Tensor) -> bool:
    """Whether reading a value costs nothing: on an accelerator it would wait for the device."""
    return tensor.is_cpu


def _best(logits: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The ``width`` best values of each row, float32, and their tokens, lower ids first among equals."""
    best, ids = torch.topk(logits, min(width + 1, logits.shape[1]), dim=1)
    if _can_look(best) and not (best[:, 1:] == best[:, :-1]).any():
        return best[:, :width].float(), ids[:, :width]
    ids = _order_ties(logits, best[:, :width], ids[:, :width])
    return logits.gather(1, ids).float(), ids


def _order_ties(logits: Tensor, best: Tensor, ids: Tensor) -> Tensor:
    """The tokens of a row's best values in the order of the rule; ``topk`` leaves equal logits in any order."""
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
