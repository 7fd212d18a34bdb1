"""Which token of an answer emitted a character."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
"""Stands at the end of a text whose last character needs further tokens."""


def token_ends(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """For each token the length of the text once it is emitted, outer blanks left out."""
    whole = decode(tokens)
    blank = len(whole) - len(whole.lstrip())
    ends: list[int] = []
    for stop in range(1, len(tokens) + 1):
        said = len(decode(tokens[:stop]).rstrip(UNFINISHED)) - blank
        ends.append(max(said, ends[-1] if ends else 0))
    return ends


def onset(ends: Sequence[int], character: int) -> int:
    """The step that emitted the token in which a character lies; the last one, where the text says more than the tokens."""
    return min(bisect_right(ends, character), len(ends) - 1)
