"""The formulas of HALC: fields of view around a box, the pairs of them that differ most, and who survives a ranking."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import InputError

Box = tuple[float, float, float, float]
"""Left, top, right, bottom as fractions of the picture."""

CENTRE: Box = (0.2, 0.2, 0.8, 0.8)
"""The box of a word that is not detected."""

SMALLEST = 0.8
FLOOR = -1e3


def grown(box: Sequence[float], share: float) -> Box:
    """A box with ``share`` of its width and height added, half on each side, cut off at the picture's edges."""
    left, top, right, bottom = box
    wide, high = (right - left) * share / 2, (bottom - top) * share / 2
    return max(0.0, left - wide), max(0.0, top - high), min(1.0, right + wide), min(1.0, bottom + high)


def fields(box: Sequence[float], growth: float = 0.6, count: int = 4) -> list[Box]:
    """The box shrunk by ``growth`` (0.8 at most), itself, and grown again and again from the one before."""
    left, top, right, bottom = box if len(box) == 4 else (0.0,) * 4
    if not (0 <= left < right <= 1 and 0 <= top < bottom <= 1):
        raise InputError(
            f"the box {tuple(box)} is not a box", hint="left, top, right, bottom as fractions of the picture"
        )
    if count == 1:
        return [(left, top, right, bottom)]
    found = [grown(box, -min(growth, SMALLEST)), (left, top, right, bottom)]
    while len(found) < count:
        found.append(grown(found[-1], growth))
    return found[:count]


def divergences(logits: Tensor) -> Tensor:
    """J_ij = ½ (KL(m | f_i) + KL(m | f_j)) of fields (F, V), m the mean distribution; the upper triangle (F, F).

    DoLa's reversed divergence as a sum over the vocabulary.
    """
    log_probs, probs = logits.float().log_softmax(-1), logits.float().softmax(-1)
    found = torch.zeros(len(logits), len(logits))
    for i in range(len(logits)):
        for j in range(i + 1, len(logits)):
            middle = (probs[i] + probs[j]) / 2
            entropy = torch.xlogy(middle, middle)
            first, second = ((entropy - _product(middle, log_probs[k])).sum() for k in (i, j))
            found[i, j] = (first + second) / 2
    return found


def _product(share: Tensor, log_prob: Tensor) -> Tensor:
    """share * log_prob, 0 where the share is."""
    return torch.where(share > 0, share * log_prob, torch.zeros_like(share))


def contrasts(logits: Tensor, pairs: int, weight: float = 0.05) -> Tensor:
    """f_j - weight f_i and f_i - weight f_j of the ``pairs`` of fields (F, V) that differ most, (2 pairs, V).

    Where the first number of a difference is below -1000 the second becomes -1000, for the differences after it too, as
    in the official program.
    """
    size = len(logits)
    if not 1 <= pairs <= size * (size - 1) // 2:
        raise InputError(f"{pairs} pairs cannot be made of {size} fields")
    best = divergences(logits).flatten().topk(pairs).indices.tolist()
    left, found = logits.float().clone(), []
    for i, j in (divmod(place, size) for place in best):
        for final, base in ((j, i), (i, j)):
            left[base] = left[base].masked_fill(left[final] < FLOOR, FLOOR)
            found.append(left[final] - weight * left[base])
    return torch.stack(found)


def survivors(scores: Sequence[float], texts: Sequence[str], count: int) -> list[int]:
    """The places of the ``count`` best texts, no text twice, of equal scores the later one first.

    Where there are fewer different texts the best one fills up, as in the official program.
    """
    found: dict[str, int] = {}
    for place in np.argsort(np.asarray(scores), kind="stable")[::-1].tolist():
        found.setdefault(texts[place], place)
    best = list(found.values())[:count]
    return best + best[:1] * (count - len(best))
