"""OPERA's search over one prompt, as pure bookkeeping: what is kept, penalized and rejected, and when to roll back.

It knows no model: it takes logits and attention rows, and says which tokens to feed next. It follows the official program
in its oddities, too: column scores overflow in 16 bits, and a beam whose candidates all overflow continues with other
tokens; the columns that beams lean on are not reordered with the beams; a roll-back forgets the rejects of the next place
and of the far end of a list of 512; a second roll-back to a place keeps the hypotheses finished in between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from reweigh.rivals.opera import OPERA


@dataclass(frozen=True)
class Finished:
    """A hypothesis that has ended: its generated tokens and its length-normalized score."""

    score: float
    tokens: Tensor


@dataclass
class Hypotheses:
    """At most ``count`` finished hypotheses, in the order in which they were found.

    Attributes:
        length_penalty: Power of the length that a score is divided by.
        early_stopping: When to stop with ``count`` hypotheses: ``True`` at once, ``False`` if no beam would do better by
            ending now, "never" if no beam could do better even at the greatest length.
        max_length: Greatest length, prompt included.
    """

    count: int
    length_penalty: float
    early_stopping: bool | str
    max_length: int
    found: list[Finished] = field(default_factory=list)

    def copy(self) -> Hypotheses:
        """Return a copy that can grow on its own."""
        return replace(self, found=list(self.found))

    def add(self, tokens: Tensor, log_prob: float, length: int) -> None:
        """Keep a hypothesis of ``length`` tokens, prompt included, unless all those kept are at least as good."""
        score = log_prob / length**self.length_penalty
        if len(self.found) == self.count:
            worst = min(range(self.count), key=lambda one: self.found[one].score)
            if not score > self.found[worst].score:
                return
            del self.found[worst]
        self.found.append(Finished(score, tokens))

    def is_done(self, best_log_prob: float, length: int) -> bool:
        """Whether no beam is expected to enter."""
        if len(self.found) < self.count:
            return False
        if self.early_stopping is True:
            return True
        if self.early_stopping == "never" and self.length_penalty > 0:
            length = self.max_length
        return bool(min(one.score for one in self.found) >= best_log_prob / length**self.length_penalty)

    def best(self) -> list[Finished]:
        """Return the hypotheses, best first."""
        return sorted(self.found, key=lambda one: one.score)[::-1]


TINY = 1e-7
FILLER = -999.0
EARLY = 10
"""For the first tokens, attention to the image is a bonus; nothing is rolled back to them."""

WINDOW = 512
"""Length of the official program's lists; it never rolls back beyond them."""

NEVER = -1e9

Ends = Callable[[Tensor], Tensor]
"""From generated tokens (n, t) to which rows end there."""


@dataclass(frozen=True)
class Beams:
    """The k beams: generated tokens (k, t), summed log-probabilities (k,), and whether the search continues."""

    tokens: Tensor
    scores: Tensor
    open: bool = True

    @classmethod
    def start(cls, count: int, device: torch.device) -> Beams:
        """Return k equal rows; only the first one counts, so that the first step does not choose k copies."""
        scores = torch.full((count,), NEVER, device=device)
        scores[0] = 0.0
        return cls(torch.empty(count, 0, dtype=torch.int64, device=device), scores)


@dataclass
class Moment:
    """The state after t generated tokens, to which a roll-back may return.

    Attributes:
        row: Attention (k, t) of the last token to the answer; earlier rows are in earlier moments.
        parents: The beam that each beam came from.
        chosen: The (parent, token) pairs chosen at this moment.
    """

    beams: Beams
    row: Tensor
    parents: Tensor
    finished: Hypotheses
    chosen: list[tuple[int, int]] = field(default_factory=list)


def column_scores(maps: Tensor, scale: float) -> Tensor:
    """c_j = 1e-7 * product of scale * A_ij over i >= j, (..., R), in 16 bits: infinite above 65504."""
    scaled = scale * maps
    scores = torch.zeros(maps.shape[:-1], dtype=torch.float16, device=maps.device)
    for column in range(maps.shape[-1]):
        scores[..., column] = (TINY * scaled[..., column:, column].prod(-1)).float()
    return scores


def leant_on(history: Tensor, where: int, threshold: int) -> bool:
    """Whether every beam's history (k, n) has column ``where`` more than ``threshold`` times, and it is late enough."""
    return where >= EARLY and bool(((history == where).sum(dim=-1) > threshold).all())


class Search:
    """The beams of one prompt and their history.

    Args:
        options: OPERA's own options.
        config: ``generate``'s settings for beam search.
        prompt: Tokens of the prompt.

    Attributes:
        beams: The current beams.
        maps: Attention (k, t, t) among the tokens of the answer.
        finished: The hypotheses that have ended.
        moments: The states so far, by length.
        leanings: For each step, the column that each beam leans on.
        rejected: By length, the pairs that roll-backs rejected there.
        uses: By length, the number of roll-backs to it.
        rollbacks: The (from, to) lengths of all roll-backs.
    """

    def __init__(self, options: OPERA, config: Any, prompt: int, device: torch.device) -> None:
        count, eos = config.num_beams, config._eos_token_tensor
        self.options, self.prompt = options, prompt
        self.eos: tuple[int, ...] = () if eos is None else tuple(eos.tolist())
        self.beams = Beams.start(count, device)
        self.maps = torch.zeros(count, 0, 0, device=device)
        self.parents = torch.arange(count, device=device)
        self.finished = Hypotheses(count, config.length_penalty, config.early_stopping, config.max_length)
        self.moments: list[Moment] = []
        self.leanings: list[Tensor] = []
        self.rejected: dict[int, list[tuple[int, int]]] = {}
        self.uses: dict[int, int] = {}
        self.rollbacks: list[tuple[int, int]] = []

    def remember(self) -> None:
        """Remember the present state."""
        row = self.maps[:, -1] if self.moments else self.maps.flatten(1)
        self.moments.append(Moment(self.beams, row, self.parents, self.finished.copy()))

    def score(self, logits: Tensor, tokens: Tensor, own: Tensor, rows: Tensor, image: Tensor) -> Tensor:
        """Return scores (k, V) of the next token: penalized logits of the candidates, -999 elsewhere.

        Args:
            tokens: The candidates (k, C).
            own: Their logits (k, C).
            rows: Their attention to the answer, themselves included, (k, C, t + 1).
            image: Their attention to the image (k, C).
        """
        before = self.maps[:, None].expand(-1, rows.shape[1], -1, -1)
        largest, where = column_scores(_joined(before, rows), self.options.scale).max(dim=-1)
        self.leanings.append(where.mode(dim=-1).values)
        penalty = -image if rows.shape[-1] <= EARLY else largest
        scores = (own - self.options.weight * penalty).to(own.dtype)
        return torch.full_like(logits, FILLER).scatter(-1, tokens, scores)

    def target(self) -> int | None:
        """Return the length to roll back to, if every beam leans on one token and the place is not used up."""
        where = int(self.leanings[-1].mode().values)
        if where + 2 >= WINDOW or not leant_on(
            torch.stack(self.leanings, dim=-1), where, self.options.threshold
        ):
            return None
        for length in (where + 1, where):
            if self.uses.get(length, 0) < self.options.candidates:
                self.uses[length] = self.uses.get(length, 0) + 1
                return length
        return None

    def rewind(self, length: int) -> None:
        """Go back to the moment with ``length`` tokens, or to the previous one, and reject what was chosen there."""
        for place in range(1, len(self.moments) - length - 1):
            self.rejected.pop(WINDOW - place, None)
        restored = min(length, len(self.moments) - 2)
        self.rollbacks.append((len(self.moments) - 1, restored))
        del self.moments[restored + 1 :], self.leanings[restored + 1 :]
        moment = self.moments[-1]
        self.beams, self.parents, self.maps = moment.beams, moment.parents, self._map(restored)
        self.finished = moment.finished  # not a copy: a second return finds what was finished since the first
        self.rejected.pop(length + 1, None)
        self.rejected.setdefault(length, []).extend(moment.chosen)

    def _map(self, length: int) -> Tensor:
        """Rebuild the attention map (k, t, t) of a moment from the rows of the moments before it."""
        count = len(self.beams.scores)
        own = torch.arange(count, device=self.beams.scores.device)
        maps = self.moments[length].row.new_zeros(count, length, length)
        for place in range(length, 0, -1):
            moment = self.moments[place]
            maps[:, place - 1, :place] = moment.row[own]
            own = moment.parents[own]
        return maps

    def reject(self, logits: Tensor, place: int) -> Tensor:
        """Shift logits (k, V) after a roll-back so that their minimum and the pairs rejected at ``place`` are -999."""
        parents, tokens = (list(part) for part in zip(*self.rejected[place], strict=True))
        scores = logits - (-FILLER + logits.amin(dim=-1, keepdim=True))
        scores[parents, tokens] = FILLER
        return scores

    def advance(self, log_probs: Tensor, ends: Ends) -> Tensor:
        """Extend the beams by one token and set finished ones aside; return the parent of each new beam (k,)."""
        count, vocab = log_probs.shape
        # 2 k continuations as in the official program, more if several tokens can end an answer
        width = min(max(2, 1 + len(self.eos)) * count, count * vocab)
        best, places = (log_probs + self.beams.scores[:, None]).view(1, -1).topk(width, dim=1)
        best, places = best[0], places[0]
        length = self.prompt + self.beams.tokens.shape[1]
        kept: list[int] = []
        for rank, (score, place) in enumerate(zip(best.tolist(), places.tolist(), strict=True)):
            if place % vocab not in self.eos:
                kept.append(rank)
            elif rank < count:
                # scored without its end token, and returned with the first of them
                ended = torch.cat([self.beams.tokens[place // vocab], places.new_tensor(self.eos[:1])])
                self.finished.add(ended, score, length)
            if len(kept) == count:
                break
        parents, tokens = places[kept] // vocab, places[kept] % vocab
        grown = torch.cat([self.beams.tokens[parents], tokens[:, None]], dim=1)
        done = self.finished.is_done(best.max().item(), length + 1)
        cut_off = not done and bool(ends(grown).all())
        self.beams = Beams(grown, best[kept], open=not done and not cut_off)
        if cut_off:  # unfinished beams count as they stand
            for row, score in zip(grown, best[kept].tolist(), strict=True):
                self.finished.add(row, score, length + 1)
        self.moments[-1].chosen = list(zip(parents.tolist(), tokens.tolist(), strict=True))
        return parents

    def grow(self, parents: Tensor, rows: Tensor) -> None:
        """Add the attention (k, t) of the newly chosen tokens to the answer."""
        self.parents = parents
        self.maps = _joined(self.maps[parents], rows)


def _joined(maps: Tensor, rows: Tensor) -> Tensor:
    """Add a row (..., t + 1) below maps (..., t, t), and zeros above its last entry."""
    wider = torch.nn.functional.pad(maps.to(rows.dtype), (0, 1))
    return torch.cat([wider, rows[..., None, :]], dim=-2)
