"""Finished hypotheses of a beam search as transformers 4.29 kept them, on which OPERA's program is written.

They are scored over prompt and answer and kept without the token that ended them; of two equal scores the later wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Finished:
    """A hypothesis that has ended: its generated tokens and its length-normalised score."""

    score: float
    tokens: Tensor


@dataclass
class Hypotheses:
    """At most ``count`` finished hypotheses, in the order in which they were found.

    Attributes:
        length_penalty: Power of the length that a score is divided by.
        early_stopping: ``True`` ends the search with ``count`` hypotheses, ``False`` where none under way could do better
            if it ended now, "never" where none could do better at the greatest length.
        max_length: Greatest length, prompt included.
    """

    count: int
    length_penalty: float
    early_stopping: bool | str
    max_length: int
    found: list[Finished] = field(default_factory=list)

    def copy(self) -> Hypotheses:
        """A copy to which others can be added."""
        return Hypotheses(
            self.count, self.length_penalty, self.early_stopping, self.max_length, list(self.found)
        )

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
        """Whether nothing under way is expected to enter."""
        if len(self.found) < self.count:
            return False
        if self.early_stopping is True:
            return True
        if self.early_stopping == "never" and self.length_penalty > 0:
            length = self.max_length
        return bool(min(one.score for one in self.found) >= best_log_prob / length**self.length_penalty)

    def best(self) -> list[Finished]:
        """The hypotheses, best first."""
        return sorted(self.found, key=lambda one: one.score)[::-1]
