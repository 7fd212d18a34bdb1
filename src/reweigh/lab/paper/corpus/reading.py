"""What a study corpus reads of an image's visual states: all readouts, and the same logits with other scales.

The scale of a position is how sharp its distribution is. Multiplying a position's logits by a positive number keeps every
rank and changes every probability. Two reads through the lens, in chunks: the first gives evidence and scales, the second
needs the scales of all positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.method.lens import Lens
from reweigh.method.readouts import READOUTS
from reweigh.method.sums import Positions, ReadoutSums, blocks

RESCALED_RANK, RESCALED_LOGPROB, EQUALIZED_PROB = "dmrr-rescaled", "logprob-rescaled", "prob-equalized"
EVIDENCE = (*READOUTS, RESCALED_RANK, RESCALED_LOGPROB, EQUALIZED_PROB)
"""Every vector that is kept: all readouts, two of them with the positions' scales permuted, and ``prob`` equalized."""

RANKS = (1, 2, 5, 10, 20, 50, 100, 500, 1000)
"""Vocabulary ranks whose log-probability is kept, as far as the vocabulary goes."""

ABSOLUTE = (1e-3, 1e-4, 1e-5)
RELATIVE = (32.0, 3.2, 1.0, 0.32)
"""Probability thresholds, and those in units of 1/V."""


def kept_ranks(vocab_size: int) -> tuple[int, ...]:
    """Return the ranks that are below the size of the vocabulary."""
    return tuple(rank for rank in RANKS if rank < vocab_size)


def thresholds(vocab_size: int) -> tuple[float, ...]:
    """Return the absolute thresholds, then the relative ones."""
    return (*ABSOLUTE, *(share / vocab_size for share in RELATIVE))


def threshold_names() -> tuple[str, ...]:
    """Name the thresholds, in the same order."""
    return (*(f"{tau:.0e}" for tau in ABSOLUTE), *(f"{share:g}/V" for share in RELATIVE))


@dataclass(frozen=True, eq=False)
class PositionSummary:
    """What is kept of each visual position of an image.

    Attributes:
        scale: (P,) sigma_j, the standard deviation of its logits over the vocabulary.
        log_probability: (P, K) log-probability of the token at each of ``kept_ranks``.
        counts: (P, T) N_j(tau), the number of tokens with at least each of the ``thresholds``.
    """

    scale: NDArray[np.float64]
    log_probability: NDArray[np.float64]
    counts: NDArray[np.int32]


def summarize(positions: Positions) -> PositionSummary:
    """Compute scale, log-probabilities by rank and counts above thresholds of some positions."""
    vocab_size = positions.logits.shape[1]
    ranks = kept_ranks(vocab_size)
    best = positions.log_probability.topk(max(ranks, default=0), dim=1).values
    counts = [(positions.probability >= tau).sum(dim=1) for tau in thresholds(vocab_size)]
    return PositionSummary(
        positions.scale.cpu().numpy(),
        best[:, [rank - 1 for rank in ranks]].cpu().numpy(),
        torch.stack(counts, dim=1).to(torch.int32).cpu().numpy(),
    )


def join(parts: Sequence[PositionSummary]) -> PositionSummary:
    """Join the summaries of consecutive chunks."""
    columns = ([getattr(part, name) for part in parts] for name in ("scale", "log_probability", "counts"))
    return PositionSummary(*(np.concatenate(column) for column in columns))


def rescaled(logits: Tensor, factor: NDArray[np.float64]) -> Tensor:
    """Multiply logits (P, V) by a positive factor (P,) of each position, in float64.

    In float32 the product could make distinct logits equal, and the ranks would move.
    """
    own = logits.cpu() if logits.device.type == "mps" else logits
    return own.double() * torch.as_tensor(factor, device=own.device)[:, None]


def ordinals(logits: Tensor) -> Tensor:
    """Replace each row's values by their order: 0 for the lowest, equal for equals, float32.

    The rank kernels take at most float32; order is all they look at.
    """
    ascending, order = torch.sort(logits, dim=1)
    ordinal = torch.zeros_like(order)
    ordinal[:, 1:] = (ascending[:, 1:] != ascending[:, :-1]).cumsum(dim=1)
    return torch.zeros_like(order).scatter_(1, order, ordinal).float()


def equalizing_factor(scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return median_i(sigma_i) / sigma_j, which gives every position of an image the same scale."""
    return _over(np.full_like(scale, np.median(scale)), scale)


def permuting_factor(scale: NDArray[np.float64], seed: int, image: int) -> NDArray[np.float64]:
    """Return sigma_pi(j) / sigma_j with pi drawn by (seed, image), which gives each position the scale of another."""
    drawn = np.random.default_rng([seed, image]).permutation(len(scale))
    return _over(scale[drawn], scale)


def _over(wanted: NDArray[np.float64], scale: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide; a position without any spread keeps its logits."""
    factor = np.ones_like(scale)
    np.divide(wanted, scale, out=factor, where=(scale > 0) & (wanted > 0))
    return factor


@torch.no_grad()
def read_image_states(lens: Lens, states: Tensor, *, seed: int, number: int) -> dict[str, Any]:
    """Read the visual states (P, d) of the image at place ``number`` of its set, as fields of a ``StudyImage``."""
    sums = ReadoutSums(lens.rows, readouts=list(READOUTS))
    parts = []
    for chunk in torch.split(states, lens.chunk):
        for positions in blocks(lens.ranked(chunk)):
            sums.add(positions)
            parts.append(summarize(positions))
    original = join(parts)
    equalize = equalizing_factor(original.scale)
    permute = permuting_factor(original.scale, seed, number)
    even = ReadoutSums(lens.rows, readouts=["prob"])
    moved = ReadoutSums(lens.rows, readouts=["logprob"])
    ranks = ReadoutSums(lens.rows)
    parts, start = [], 0
    for chunk in torch.split(states, lens.chunk):
        for raw in blocks(lens.ranked(chunk)):
            part = slice(start, start + len(raw.logits))
            positions = Positions(rescaled(raw.logits, equalize[part]))
            even.add(positions)
            parts.append(summarize(positions))
            permuted = rescaled(raw.logits, permute[part])
            moved.add(permuted)
            ranks.add(ordinals(permuted))
            start = part.stop
    evidence = {name: sums.evidence(name) for name in READOUTS}
    evidence |= {RESCALED_RANK: ranks.evidence(), RESCALED_LOGPROB: moved.evidence("logprob")}
    evidence[EQUALIZED_PROB] = even.evidence("prob")
    found = {name: vector.cpu().numpy() for name, vector in evidence.items()}
    return {"evidence": found, "original": original, "equalized": join(parts)}
