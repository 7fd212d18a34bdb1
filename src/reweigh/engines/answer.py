"""A model's answer, in the one shape that every engine returns and every run accepts. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from reweigh.text import THINKING


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said to one prompt.

    Attributes:
        text: The decoded text, special tokens and outer white space left out.
        tokens: Ids of the generated tokens, up to and including the one that ended the answer.
        prompt_tokens: Tokens of the prompt, padding left out.
    """

    text: str
    tokens: tuple[int, ...] = ()
    prompt_tokens: int = 0


def decode(tokenizer: Any, tokens: Sequence[int]) -> str:
    """Return the text of an answer without special tokens, but with the marks of thinking, which may be special."""
    special = getattr(tokenizer, "all_special_tokens", ())
    names = {mark.removesuffix("thought") for pair in THINKING for mark in pair}.intersection(special)
    marks = {tokenizer.convert_tokens_to_ids(name): name for name in names}
    if marks.keys().isdisjoint(tokens):
        return str(tokenizer.decode(list(tokens), skip_special_tokens=True))
    parts = groupby(tokens, key=marks.get)
    return "".join(mark or tokenizer.decode(list(part), skip_special_tokens=True) for mark, part in parts)
