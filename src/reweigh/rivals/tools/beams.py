"""One step of beam search over one prompt, as a pure function of its state: what is kept, what is finished.

The rules are those of transformers' current beam search, so that with no edit the two agree token for token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

NEVER = -1e9


@dataclass(frozen=True)
class Finished:
    """A hypothesis that has ended: its generated tokens and its length-normalised score."""

    score: float
    tokens: Tensor


@dataclass(frozen=True)
class Beams:
    """The k hypotheses under way.

    Attributes:
        tokens: Generated tokens (k, t).
        scores: Summed log-probabilities (k,).
        finished: Ended hypotheses, best first, at most k.
        open: Whether a hypothesis under way could still enter the finished ones.
    """

    tokens: Tensor
    scores: Tensor
    finished: tuple[Finished, ...] = ()
    open: bool = True

    @classmethod
    def start(cls, count: int, device: torch.device) -> Beams:
        """k equal rows of which only the first counts, so that the first step does not choose k copies."""
        scores = torch.full((count,), NEVER, device=device)
        scores[0] = 0.0
        return cls(torch.empty(count, 0, dtype=torch.int64, device=device), scores)


def advance(
    beams: Beams,
    log_probs: Tensor,
    ends: Callable[[Tensor], Tensor],
    *,
    spare: int,
    length_penalty: float,
    early_stopping: bool | str,
) -> tuple[Beams, Tensor]:
    """Extend the hypotheses by one token each; also give each new row's parent row (k,).

    Args:
        log_probs: Log-probabilities (k, V) of the next token.
        ends: Tells for generated tokens (n, t + 1) which rows end there.
        spare: How many continuations are looked at, at least 2 k.
    """
    count, vocab = log_probs.shape
    total = (log_probs + beams.scores[:, None]).flatten()
    best, places = total.topk(min(spare, total.numel()))
    parents, tokens = places // vocab, places % vocab
    grown = torch.cat([beams.tokens[parents], tokens[:, None]], dim=1)
    over = ends(grown)
    finished = list(beams.finished)
    length = grown.shape[1] ** length_penalty
    finished += [
        Finished(float(best[i]) / length, grown[i])
        for i in range(count)
        if bool(over[i]) and float(best[i]) > NEVER / 2
    ]
    finished = sorted(finished, key=lambda one: -one.score)[:count]
    order = (best + over * NEVER).topk(count).indices
    scores = best[order] + over[order] * NEVER
    reachable = float(scores[0]) / length
    full = len(finished) == count
    improvable = not full or (early_stopping is False and reachable > finished[-1].score)
    still = improvable and not bool(over.all())
    return Beams(grown[order], scores, tuple(finished), still), parents[order]
