"""MCoT's visual entropy (Ma et al., CVPR 2026): a penalty on tokens that the image's positions predict alike.

E(v) = -sum_j p_j ln p_j / ln m, where p is the softmax of token v's logits over the m visual positions. Where the model's
likeliest token has E > gamma: y = a - alpha E, on the whole vocabulary.

ReWEIGH reads the same head at the same positions. It asks at which rank a token stands there, compares that with what is
usual for the token, and edits only candidates that fall short of it; the entropy asks whether some positions predict the
token more than others, uses the number unchanged, and edits every token once the likeliest one exceeds the threshold.

The official program is greedy and serves batches of one; here each row decides by itself, in any way of decoding. Its
method is meant for models that think before they answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.tools import Anatomy, Decoder, Lens, Pass, UnsupportedError, in_range

CHUNK = 2**24
"""Most numbers of a readout in memory at once."""


@dataclass(frozen=True, eq=False)
class Spread:
    """How the logits of each token (V,) are spread over the positions read so far.

    Attributes:
        count: Positions.
        largest: Largest logit.
        weight: Sum of w = e^(logit - largest).
        slack: Sum of w (logit - largest).
    """

    count: int
    largest: Tensor
    weight: Tensor
    slack: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> Spread:
        """Return the spread over some positions' logits (n, V)."""
        largest = logits.amax(dim=0)
        below = logits - largest
        weights = below.exp()
        return cls(len(logits), largest, weights.sum(dim=0), (weights * below).sum(dim=0))

    def joined(self, other: Spread) -> Spread:
        """Return the spread over the positions of both."""
        largest = torch.maximum(self.largest, other.largest)
        weight, slack = torch.zeros_like(largest), torch.zeros_like(largest)
        for part in (self, other):
            down = part.largest - largest
            weight = weight + down.exp() * part.weight
            slack = slack + down.exp() * (part.slack + down * part.weight)
        return Spread(self.count + other.count, largest, weight, slack)

    @cached_property
    def entropy(self) -> Tensor:
        """Each token's entropy over the positions (V,), from 0 to 1."""
        if self.count < 2:
            raise UnsupportedError("the image has a single position, over which there is no entropy")
        return (self.weight.log() - self.slack / self.weight) / math.log(self.count)


class MCoT(Decoder):
    """A penalty by entropy over the visual positions, where the likeliest token's entropy is high.

    Args:
        alpha: Weight of the entropy; 0 is the base model. The README uses 0.75.
        gamma: Entropy of the likeliest token above which the logits are edited; 0 edits every step.
        layer: Index of ``hidden_states`` that is read; the last one (after the final norm) by default. Earlier ones are
            read without the norm.
    """

    title = "MCoT (visual entropy)"
    grid = (("alpha", (0.75, 1.5, 3.0)), ("gamma", (0.5, 0.9)))
    reads_every_step = False
    runs_passes = False

    def __init__(
        self,
        anatomy: Anatomy,
        processor: Any = None,
        *,
        alpha: float = 0.75,
        gamma: float = 0.5,
        layer: int | None = None,
    ) -> None:
        super().__init__(anatomy, processor)
        self.alpha = in_range("alpha", alpha, 0)
        self.gamma = in_range("gamma", gamma, 0, 1)
        last = len(anatomy.blocks)
        self.index = last if layer is None else int(in_range("layer", layer, 0, last))
        self.layers = frozenset({self.index - 1})
        self.lens = Lens(anatomy.norm, anatomy.head)

    def edit(self, forward: Pass) -> Tensor | None:
        """Read new images; penalize the last columns of rows that have one."""
        for index, row, columns in forward.new():
            states = forward.states[self.index - 1][index, columns]
            forward.keep(row, columns, self.read(states, row.reading))
        if self.alpha == 0 or not forward.has_image or forward.past + forward.length < forward.prompt.end:
            return None
        main = forward.logits[:, -forward.edited_columns() :].float()
        edited = main.clone()
        for index, row in enumerate(forward.rows):
            if row.reading is not None:
                edited[index] = self.penalized(main[index], row.reading.entropy.to(main.device))
        return forward.with_last(edited, forward.image_rows())

    def read(self, states: Tensor, before: Spread | None) -> Spread:
        """Return the spread over the visual positions read before and those with new states (n, d)."""
        is_last = self.index == len(self.anatomy.blocks)
        parts = torch.split(states, max(1, CHUNK // self.lens.vocab_size))
        new = [Spread.of(self.lens.read(part, norm=is_last).float()) for part in parts]
        return reduce(Spread.joined, new if before is None else [before, *new])

    def penalized(self, logits: Tensor, entropy: Tensor) -> Tensor:
        """Return logits (n, V) minus alpha times the entropy (V,), where the likeliest token's exceeds gamma."""
        current = entropy[logits.argmax(dim=-1, keepdim=True)]
        return torch.where(current > self.gamma, logits - self.alpha * entropy, logits)
