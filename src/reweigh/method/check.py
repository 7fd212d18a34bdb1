"""The detector: which words of a text lack support in the image. The same evidence, without any intervention.

Evidence depends on the image and the prompt only, so the text need not be fed to the model: its tokens are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from reweigh.method.strength import strength


class References(Protocol):
    """What a check needs of a reference table."""

    @property
    def scale(self) -> float:
        """b0, the unit of a deficit."""

    def reference(self, token: int) -> float | None:
        """b(v), or ``None`` for a token that is not registered."""


@dataclass(frozen=True)
class CheckedToken:
    """One token of the text; the last three are ``None`` where it is not registered."""

    token: int
    text: str
    start: int
    end: int
    evidence: float | None
    reference: float | None
    strength: float | None


@dataclass(frozen=True)
class CheckedWord:
    """A run of tokens without white space; its strength is that of its first registered token."""

    text: str
    start: int
    end: int
    strength: float | None


@dataclass(frozen=True)
class Checked:
    """A text with the deficit of each of its tokens."""

    text: str
    tokens: tuple[CheckedToken, ...]

    def words(self) -> list[CheckedWord]:
        """Tokens joined to words as a reader sees them."""
        words: list[CheckedWord] = []
        for token in self.tokens:
            piece = self.text[token.start : token.end]
            if not piece.strip():
                continue
            start = token.start + len(piece) - len(piece.lstrip())
            end = token.start + len(piece.rstrip())  # a token may end in white space, as ".\n" does
            strength = token.strength
            if words and words[-1].end >= start:  # byte pieces of one character share their span
                before = words.pop()
                start, end = before.start, max(before.end, end)
                strength = before.strength if before.strength is not None else strength
            words.append(CheckedWord(self.text[start:end], start, end, strength))
        return words

    def weak(self, threshold: float = 0.5) -> list[CheckedWord]:
        """The words whose strength is at least ``threshold``: the image does not support them."""
        return [word for word in self.words() if word.strength is not None and word.strength >= threshold]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "text": self.text,
            "tokens": [
                {
                    "token": token.token,
                    "text": token.text,
                    "start": token.start,
                    "end": token.end,
                    "dmrr": token.evidence,
                    "b": token.reference,
                    "s": token.strength,
                }
                for token in self.tokens
            ],
            "words": [
                {"text": word.text, "start": word.start, "end": word.end, "s": word.strength}
                for word in self.words()
            ],
        }


def check_tokens(
    text: str,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    evidence: Tensor,
    table: References,
) -> Checked:
    """Compare each token of a text with its reference; ``evidence`` (V,) is that of the image."""
    tokens = []
    for token, (start, end) in zip(ids, offsets, strict=True):
        reference = table.reference(token)
        value = s = None
        if reference is not None:
            value = float(evidence[token])
            s = float(strength(reference, np.array(value), table.scale))
        tokens.append(CheckedToken(token, text[start:end], start, end, value, reference, s))
    return Checked(text, tuple(tokens))
