"""Words of an answer that is being written: where the last one begins, and what is looked up of it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

WORD_MARKS = ("▁", "Ġ", ".")
"""What a token's piece holds if it begins a new word: the marks of tokenizers, or the end of a sentence."""


class Words:
    """Finds the words in a row of tokens.

    Args:
        tokenizer: The model's tokenizer.
        ends: Tokens that end an answer; they begin a new word, too.
    """

    def __init__(self, tokenizer: Any, ends: Collection[int]) -> None:
        self.tokenizer = tokenizer
        self.ends = frozenset(ends)

    def begins(self, token: int) -> bool:
        """Whether a token begins a new word."""
        if token in self.ends:
            return True
        piece = self.tokenizer.convert_ids_to_tokens(token) or ""
        return any(mark in piece for mark in WORD_MARKS)

    def last_start(self, tokens: Sequence[int]) -> int:
        """Where the last word of some tokens begins."""
        return next((place for place in range(len(tokens) - 1, -1, -1) if self.begins(tokens[place])), 0)

    def text(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, without special ones and outer white space."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def without(self, tokens: Sequence[int], starts: Collection[int]) -> list[int]:
        """Some tokens without the words that begin at the given places."""
        kept, dropped = [], False
        for place, token in enumerate(tokens):
            dropped = place in starts or (dropped and not self.begins(token))
            if not dropped:
                kept.append(token)
        return kept


def bare(word: str) -> str:
    """A word without punctuation at its ends and without a final "s", as HALC looks it up."""
    for mark in (".", ",", "'", "]", "[", ")"):
        word = word.strip(mark)
    return word.removesuffix("s")


@dataclass(frozen=True)
class LookUp:
    """Which words HALC looks up in the picture.

    Attributes:
        is_entity: Whether a word may name a thing.
        exempt: Words that never are.
        always: Words that always are; this beats everything else.
        skip_rate: Share of the others that are skipped at random.
    """

    is_entity: Callable[[str], bool]
    exempt: Collection[str] = ()
    always: Collection[str] = ()
    skip_rate: float = 0.0

    def wants(self, word: str, draw: random.Random) -> bool:
        """Whether a word is looked up; ``draw`` decides what is skipped."""
        if word in self.always:
            return True
        skipped = draw.random() < self.skip_rate
        plain = bool(word) and "." not in word and "," not in word and word not in self.exempt
        return plain and not skipped and self.is_entity(word)
