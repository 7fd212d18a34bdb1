"""OPERA's search to the letter: every slip of the official program, for answers of up to 512 tokens.

Column scores are products that overflow in 16 bits; a beam whose candidates all overflowed goes on with tokens that were
no candidates. Hypotheses are scored over prompt and answer, by the rules of transformers 4.29. A roll-back forgets the
rejects of the next place only, and of places at the far end of a list of 512. A place rolled back to twice keeps the
hypotheses that were finished in between.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from reweigh.errors import UnsupportedError
from reweigh.rivals.opera.hypotheses import Hypotheses
from reweigh.rivals.opera.overtrust import EARLY, TINY
from reweigh.rivals.opera.retrospection import FILLER, Ends, Moment, Rules, Search
from reweigh.rivals.tools.beams import Beams, Finished

WINDOW = 512
"""Places that the official program's lists have."""


@dataclass(kw_only=True)
class LetterMoment(Moment):
    """``sums`` is the attention row (k, t) of the last token; ``parents`` say which beam each one came from."""

    parents: Tensor
    finished: Hypotheses


def products(maps: Tensor, scale: float) -> Tensor:
    """c_j = 1e-7 * product of scale * A_ij over i >= j, (..., R), in 16 bits: infinite above 65504."""
    scaled = scale * maps
    scores = torch.zeros(maps.shape[:-1], dtype=torch.float16, device=maps.device)
    for column in range(maps.shape[-1]):
        scores[..., column] = (TINY * scaled[..., column:, column].prod(-1)).float()
    return scores


class LetterSearch(Search):
    """The official search. ``sums`` is the attention map (k, t, t) among the tokens of the answer."""

    def __init__(self, rules: Rules, count: int, device: torch.device) -> None:
        super().__init__(rules, count, device)
        self.sums = torch.zeros(count, 0, 0, device=device)
        self.parents = torch.arange(count, device=device)
        self.finished = Hypotheses(count, rules.length_penalty, rules.early_stopping, rules.max_length)

    def remember(self) -> None:
        """Note the present state; of the map only its last row, the others are in earlier moments."""
        row = self.sums[:, -1] if self.moments else self.sums.flatten(1)
        self.moments.append(
            LetterMoment(beams=self.beams, sums=row, parents=self.parents, finished=self.finished.copy())
        )

    def penalties(self, rows: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """Penalty and column leant on of each candidate; of equal columns the first."""
        before = self.sums[:, None].expand(-1, rows.shape[1], -1, -1)
        largest, where = products(_joined(before, rows), self.rules.scale).max(dim=-1)
        return (-image if rows.shape[-1] <= EARLY else largest), where

    def fill(self, logits: Tensor, tokens: Tensor, scores: Tensor) -> Tensor:
        """Scores (k, V): those of the candidates, -999 elsewhere."""
        return torch.full_like(logits, FILLER).scatter(-1, tokens, scores)

    def target(self) -> int | None:
        """The length to roll back to; none at places beyond the official lists."""
        return super().target() if int(self.leanings[-1].mode().values) + 2 < WINDOW else None

    def rewind(self, length: int) -> int:
        """Return to the moment with ``length`` tokens and reject what was chosen from it."""
        for place in range(1, len(self.moments) - length - 1):
            self.rejected.pop(WINDOW - place, None)
        restored = self.restore(length)
        moment = self.moments[-1]
        self.sums, self.parents = self._map(restored), moment.parents
        self.finished = moment.finished  # not a copy: a second return finds what was finished since the first
        self.rejected.pop(length + 1, None)
        self.rejected.setdefault(length, []).extend(moment.chosen)
        return length

    def _map(self, length: int) -> Tensor:
        """The attention map (k, t, t) of the moment with ``length`` tokens, from the rows of the moments before."""
        count = len(self.beams.scores)
        own = torch.arange(count, device=self.beams.scores.device)
        maps: Tensor = self.moments[length].sums.new_zeros(count, length, length)
        for place in range(length, 0, -1):
            moment = self.moments[place]
            maps[:, place - 1, :place] = moment.sums[own]
            own = moment.parents[own]
        return maps

    def reject(self, logits: Tensor, place: int) -> Tensor:
        """Logits (k, V) after a roll-back, moved so that their minimum, and the rejected pairs, are at -999."""
        parents, tokens = (list(part) for part in zip(*self.rejected[place], strict=True))
        scores = logits - (-FILLER + logits.amin(dim=-1, keepdim=True))
        scores[parents, tokens] = FILLER
        return scores

    def advance(self, log_probs: Tensor, ends: Ends) -> Tensor:
        """Extend the beams by one token each, ended hypotheses put aside; the parent row of each new one (k,)."""
        rules, (count, vocab) = self.rules, log_probs.shape
        best, places = (log_probs + self.beams.scores[:, None]).view(1, -1).topk(2 * count, dim=1)
        length = rules.prompt + self.beams.tokens.shape[1]
        kept: list[int] = []
        for rank, (score, place) in enumerate(zip(best[0].tolist(), places[0].tolist(), strict=True)):
            if place % vocab not in rules.eos:
                kept.append(rank)
            elif rank < count:
                # scored without its end token, and given back with the first of them
                ended = torch.cat([self.beams.tokens[place // vocab], places.new_tensor(rules.eos[:1])])
                self.finished.add(ended, score, length)
            if len(kept) == count:
                break
        if len(kept) < count:
            raise UnsupportedError(
                f"fewer than {count} of the best continuations go on, where the official program fails",
                hint="give one end token (eos_token_id), or leave official out",
            )
        parents, tokens = places[0, kept] // vocab, places[0, kept] % vocab
        grown = torch.cat([self.beams.tokens[parents], tokens[:, None]], dim=1)
        done = self.finished.is_done(best.max().item(), length + 1)
        going = not done and not bool(ends(grown).all())
        self.beams = Beams(grown, best[0, kept], open=going)
        if not done and not going:  # cut off: what is under way counts as it stands
            for row, score in zip(grown, best[0, kept].tolist(), strict=True):
                self.finished.add(row, score, length + 1)
        self.note(parents)
        return parents

    def grow(self, parents: Tensor, rows: Tensor) -> None:
        """Take in the attention (k, t) that the tokens just chosen give to the answer."""
        self.parents = parents
        self.sums = _joined(self.sums[parents].to(rows.dtype), rows)

    def best(self) -> list[Finished]:
        """Finished hypotheses, the best first."""
        return self.finished.best()


def _joined(maps: Tensor, rows: Tensor) -> Tensor:
    """Maps (..., t, t) with one more row (..., t + 1) below, and a column of zeros above its last entry."""
    wider = torch.nn.functional.pad(maps.to(rows.dtype), (0, 1))
    return torch.cat([wider, rows[..., None, :]], dim=-2)
