"""A model's answer, in the one shape that every engine returns and every run accepts. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass


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
