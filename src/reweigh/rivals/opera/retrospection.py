"""OPERA's search over one prompt, as pure bookkeeping: what is kept, penalised, rejected, and when to go back.

Knows no model: it is shown logits and attention rows, and says which tokens to feed next. This is the search with the
slips of the official program repaired; ``opera_letter`` has them all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh.rivals.opera.overtrust import grow, leant_on, penalties
from reweigh.rivals.tools.beams import Beams, Finished, advance

FILLER = -999.0

Ends = Callable[[Tensor], Tensor]
"""Tells for generated tokens (n, t) which rows end there."""


@dataclass(frozen=True)
class Rules:
    """What a search goes by: OPERA's options, and those of ``generate`` that beam search has.

    Attributes:
        prompt: Tokens of the prompt.
        eos: Tokens that end an answer.
    """

    scale: float
    threshold: int
    candidates: int
    weight: float
    permute_history: bool
    prompt: int
    eos: tuple[int, ...]
    length_penalty: float
    early_stopping: bool | str
    max_length: int


@dataclass(kw_only=True)
class Moment:
    """The state with t tokens generated; ``chosen`` are the (parent, token) pairs that were taken from it."""

    beams: Beams
    sums: Tensor
    chosen: list[tuple[int, int]] = field(default_factory=list)


class Search:
    """The hypotheses of one prompt, and what is remembered of their past.

    Attributes:
        beams: The hypotheses under way.
        sums: What is kept of their attention so far: sums of ln(scale * attention) by column, (k, t).
        moments: The states so far, by length.
        leanings: By step, the column that each beam leans on.
        rejected: By length, the pairs that roll-backs to it have rejected.
        uses: By length, the roll-backs to it.
        rollbacks: The (from, to) lengths of all roll-backs.
    """

    def __init__(self, rules: Rules, count: int, device: torch.device) -> None:
        self.rules = rules
        self.beams = Beams.start(count, device)
        self.sums = torch.zeros(count, 0, dtype=torch.float64, device=device)
        self.moments: list[Any] = []
        self.leanings: list[Tensor] = []
        self.rejected: dict[int, list[tuple[int, int]]] = {}
        self.uses: dict[int, int] = {}
        self.rollbacks: list[tuple[int, int]] = []

    def remember(self) -> None:
        """Note the present state, to which a roll-back may return."""
        self.moments.append(Moment(beams=self.beams, sums=self.sums))

    def score(self, logits: Tensor, tokens: Tensor, own: Tensor, rows: Tensor, image: Tensor) -> Tensor:
        """Scores (k, V) of the next token, from each beam's candidates and the rows they would attend with.

        Args:
            tokens: The candidates (k, C).
            own: Their logits (k, C).
            rows: Their attention to the answer, themselves included, (k, C, t + 1).
            image: Their attention to the image (k, C).
        """
        penalty, where = self.penalties(rows, image)
        self.leanings.append(where.mode(dim=-1).values)
        return self.fill(logits, tokens, (own - self.rules.weight * penalty).to(own.dtype))

    def penalties(self, rows: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """Penalty and column leant on of each candidate."""
        return penalties(grow(self.sums[:, None], rows, self.rules.scale), image)

    def fill(self, logits: Tensor, tokens: Tensor, scores: Tensor) -> Tensor:
        """Scores (k, V): those of the candidates, and a filler that never wins elsewhere."""
        filler = (scores.amin(dim=-1, keepdim=True) + FILLER).clamp(max=FILLER)
        return filler.expand_as(logits).scatter(-1, tokens, scores)

    def target(self) -> int | None:
        """The length to roll back to, if every beam leans on one token and that place is not used up."""
        where = int(self.leanings[-1].mode().values)
        if not leant_on(torch.stack(self.leanings, dim=-1), where, self.rules.threshold):
            return None
        for length in (where + 1, where):
            if self.uses.get(length, 0) < self.rules.candidates:
                self.uses[length] = self.uses.get(length, 0) + 1
                return length
        return None

    def rewind(self, length: int) -> int:
        """Return to the moment with ``length`` tokens, and reject what was chosen from it; the place of the rejects."""
        length = self.restore(length)
        self.rejected = {place: pairs for place, pairs in self.rejected.items() if place <= length}
        self.rejected.setdefault(length, []).extend(self.moments[-1].chosen)
        return length

    def restore(self, length: int) -> int:
        """Make the moment with ``length`` tokens, or the one before the present, present; forget all later ones."""
        length = min(length, len(self.moments) - 2)
        self.rollbacks.append((len(self.moments) - 1, length))
        del self.moments[length + 1 :], self.leanings[length + 1 :]
        self.beams, self.sums = self.moments[-1].beams, self.moments[-1].sums
        return length

    def reject(self, logits: Tensor, place: int) -> Tensor:
        """Logits (k, V) after a roll-back, the pairs rejected at ``place`` at their row's minimum."""
        parents, tokens = (list(part) for part in zip(*self.rejected[place], strict=True))
        scores = logits.clone()
        scores[parents, tokens] = logits.amin(dim=-1)[parents]
        return scores

    def advance(self, log_probs: Tensor, ends: Ends) -> Tensor:
        """Extend the beams by one token each; the parent row of each new one (k,)."""
        rules, count = self.rules, len(self.beams.scores)
        spare = max(2, 1 + len(rules.eos)) * count
        self.beams, parents = advance(
            self.beams,
            log_probs,
            ends,
            spare=spare,
            length_penalty=rules.length_penalty,
            early_stopping=rules.early_stopping,
        )
        self.note(parents)
        return parents

    def note(self, parents: Tensor) -> None:
        """Note what was taken from the present moment."""
        tokens = self.beams.tokens[:, -1]
        self.moments[-1].chosen = list(zip(parents.tolist(), tokens.tolist(), strict=True))
        if self.rules.permute_history:
            self.leanings = [places[parents] for places in self.leanings]

    def grow(self, parents: Tensor, rows: Tensor) -> None:
        """Take in the attention (k, t) that the tokens just chosen give to the answer."""
        self.sums = grow(self.sums[parents], rows, self.rules.scale)

    def best(self) -> list[Finished]:
        """Finished hypotheses, the best first."""
        return list(self.beams.finished)
