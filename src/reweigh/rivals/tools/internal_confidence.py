"""Internal confidence of a word (Jiang et al., ICLR 2025): the probability that image positions give it, in any layer.

Every index of ``hidden_states`` is read through the head, the last one after the final norm and all others raw. Knows
nothing of models or prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.evidence import over_grid
from reweigh.method.grids import Patch
from reweigh.method.lens import Lens

TOP = 50


def top_probabilities(logits: Tensor, top: int | None = TOP) -> Tensor:
    """The softmax over the ``top`` largest of logits (..., V), 0 elsewhere; tokens that tie with the last one stay.

    ``top=None`` is the plain softmax.
    """
    log_probs = logits.float().log_softmax(-1)
    if top is not None and top < logits.shape[-1]:
        least = log_probs.topk(top, dim=-1).values[..., -1:]
        log_probs = log_probs.masked_fill(log_probs < least, float("-inf"))
    return log_probs.softmax(-1)


@dataclass(frozen=True)
class Confidence:
    """How sure one row's image positions are of some tokens.

    Attributes:
        tokens: Token ids, K of them.
        values: Probabilities (K, N + 1, P), float32: by token, index of ``hidden_states`` and visual position.
        positions: The visual positions P in the sequence.
        patches: Where each lies in its image; ``None`` where the family has no grid.
    """

    tokens: tuple[int, ...]
    values: Tensor
    positions: tuple[int, ...]
    patches: tuple[Patch | None, ...]

    def of(self, tokens: Sequence[int] | None = None) -> float:
        """Internal confidence of a word: the largest probability of any of its tokens, anywhere."""
        return float(self._word(tokens).max())

    def grid(self, tokens: Sequence[int] | None = None, *, image: int = 0, tile: int = 0) -> Tensor:
        """Localisation: the largest probability over tokens and layers, (rows, cols) of one tile of one image."""
        return over_grid(self._word(tokens).amax(dim=(0, 1)), self.patches, image=image, tile=tile)

    def localise(
        self, size: tuple[int, int], tokens: Sequence[int] | None = None, *, image: int = 0, tile: int = 0
    ) -> Tensor:
        """The grid brought to a picture's (width, height) by bilinear interpolation, (height, width)."""
        cells = self.grid(tokens, image=image, tile=tile).nan_to_num(0.0)
        grown = torch.nn.functional.interpolate(cells[None, None], size=size[::-1], mode="bilinear")
        return grown[0, 0]

    def _word(self, tokens: Sequence[int] | None) -> Tensor:
        if tokens is None:
            return self.values
        if not tokens or not set(tokens) <= set(self.tokens):
            raise InputError(f"tokens {list(tokens)} are not among those read: {list(self.tokens)}")
        return self.values[[self.tokens.index(token) for token in tokens]]


@torch.no_grad()
def read_confidence(
    lens: Lens, states: Sequence[Tensor], tokens: Sequence[int], *, top: int | None = TOP
) -> Tensor:
    """Probabilities (K, N + 1, P) of tokens, from the residual states (P, d) of index 0 (embeddings) to N, all raw."""
    ids = torch.tensor(list(tokens), dtype=torch.int64)
    layers = []
    for index, stream in enumerate(states):
        parts = []
        for start in range(0, stream.shape[0], lens.chunk):
            some = stream[start : start + lens.chunk]
            logits = lens.read(some, norm=index == len(states) - 1)
            parts.append(top_probabilities(logits, top)[:, ids.to(logits.device)].cpu())
            del logits  # or two chunks would live while the next is computed
        layers.append(torch.cat(parts))
    return torch.stack(layers).permute(2, 0, 1).contiguous()
