"""What a study corpus reads of an image's visual states: all readouts, and the same logits with other scales.

Two reads through the lens, in chunks: the first gives evidence and scales, the second needs the scales of all positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from reweigh.method.lens import Lens
from reweigh.method.readouts import READOUTS
from reweigh.method.rescaling import (
    PositionSummary,
    equalizing_factor,
    join,
    ordinals,
    permuting_factor,
    rescaled,
    summarise,
)
from reweigh.method.sums import Positions, ReadoutSums, blocks
from reweigh.paper.corpus.image import EQUALIZED_PROB, RESCALED_LOGPROB, RESCALED_RANK


@dataclass(frozen=True, eq=False)
class ImageReading:
    """Evidence vectors by name, and the summaries of the positions before and after equalization."""

    evidence: dict[str, NDArray[np.float32]]
    original: PositionSummary
    equalized: PositionSummary


@torch.no_grad()
def read_image_states(
    lens: Lens, states: Tensor, *, seed: int, number: int, kernel: str = "auto"
) -> ImageReading:
    """Read the visual states (P, d) of the image at place ``number`` of its set."""
    sums = ReadoutSums(lens.vocab_size, kernel=kernel, readouts=list(READOUTS))
    parts = []
    for logits in lens.chunks(states):
        for positions in blocks(logits):
            sums.add(positions)
            parts.append(summarise(positions))
    original = join(parts)
    equalize = equalizing_factor(original.scale)
    permute = permuting_factor(original.scale, seed, number)
    even = ReadoutSums(lens.vocab_size, readouts=["prob"])
    moved = ReadoutSums(lens.vocab_size, readouts=["logprob"])
    ranks = ReadoutSums(lens.vocab_size, kernel=kernel)
    parts, start = [], 0
    for logits in lens.chunks(states):
        for raw in blocks(logits):
            part = slice(start, start + len(raw.logits))
            positions = Positions(rescaled(raw.logits, equalize[part]))
            even.add(positions)
            parts.append(summarise(positions))
            permuted = rescaled(raw.logits, permute[part])
            moved.add(permuted)
            ranks.add(ordinals(permuted))
            start = part.stop
    evidence = {name: sums.evidence(name) for name in READOUTS}
    evidence |= {RESCALED_RANK: ranks.evidence(), RESCALED_LOGPROB: moved.evidence("logprob")}
    evidence[EQUALIZED_PROB] = even.evidence("prob")
    found = {name: vector.cpu().numpy() for name, vector in evidence.items()}
    return ImageReading(found, original, join(parts))
