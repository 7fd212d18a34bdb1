"""The words of an answer that is being written: where the last one begins, and how it is looked up."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

WORD_MARKS = ("▁", "Ġ", ".")
"""A token begins a new word if its piece holds one of these: tokenizers' marks, or the end of a sentence."""


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
