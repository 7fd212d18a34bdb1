"""The detector: which words of a text lack support in the image. The same evidence, without any intervention.

A token is unsupported if its evidence is less than 0.7 of its own reference. The strength of the edit is another reading
of the same numbers: it divides by one scale for all tokens, so that a word with high evidence reaches full strength a few
percent below its reference. ``python -m tools.bench.detector`` measures both.

Evidence depends on the image and the prompt only, so the text need not be fed to the model: its tokens are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from reweigh.method.references import strength
from reweigh.text import may_name

THRESHOLD = 0.7
"""A word with less than this share of its usual evidence is unsupported."""


class TableLike(Protocol):
    """The part of a reference table that a check needs."""

    @property
    def b0(self) -> float:
        """The pooled median, the unit of a deficit."""

    def reference(self, token: int) -> float | None:
        """Return b(v), or ``None`` for a token that is not registered."""


class State(StrEnum):
    """The verdict on a word or token."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    NOT_JUDGED = "not judged"


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

    @property
    def ratio(self) -> float | None:
        """Evidence as a share of the token's own reference."""
        if self.evidence is None or self.reference is None:
            return None
        return self.evidence / self.reference

    def state(self, threshold: float = THRESHOLD) -> State:
        """Judge the token: unsupported below the threshold, not judged without a reference."""
        if self.ratio is None:
            return State.NOT_JUDGED
        return State.UNSUPPORTED if self.ratio < threshold else State.SUPPORTED


@dataclass(frozen=True)
class CheckedWord:
    """A run of tokens without white space, judged by the token with which a decoder begins it.

    That is its first token, or the first with a letter or digit if it opens with punctuation. Later pieces follow from
    the first and say little about the word, so a word whose first token is not registered is not judged.
    """

    text: str
    start: int
    end: int
    tokens: tuple[CheckedToken, ...]

    @property
    def judge(self) -> CheckedToken:
        """The token that the word is judged by."""
        spoken = (token for token in self.tokens if any(map(str.isalnum, token.text)))
        return next(spoken, self.tokens[0])

    @property
    def strength(self) -> float | None:
        """The strength of the edit, 0 to 1, at the word's first token with a reference; it does not judge the word."""
        return next((token.strength for token in self.tokens if token.strength is not None), None)

    @property
    def ratio(self) -> float | None:
        """Evidence as a share of what is usual; ``None`` without a reference."""
        return self.judge.ratio

    def state(self, threshold: float = THRESHOLD, *, all_words: bool = False) -> State:
        """Judge the word; function words and punctuation are judged with ``all_words`` only."""
        if not all_words and not may_name(self.text):
            return State.NOT_JUDGED
        return self.judge.state(threshold)


@dataclass(frozen=True)
class Checked:
    """A text with the evidence of each of its tokens."""

    text: str
    tokens: tuple[CheckedToken, ...]

    def words(self) -> list[CheckedWord]:
        """Join tokens to words as a reader sees them."""
        runs: list[tuple[int, int, list[CheckedToken]]] = []
        for token in self.tokens:
            piece = self.text[token.start : token.end]
            if not piece.strip():
                continue
            start = token.start + len(piece) - len(piece.lstrip())
            end = token.start + len(piece.rstrip())  # a token may end in white space, as ".\n" does
            if runs and runs[-1][1] >= start:  # byte pieces of one character share their span
                start, before, run = runs.pop()
                end = max(before, end)
            else:
                run = []
            run.append(token)
            runs.append((start, end, run))
        return [CheckedWord(self.text[start:end], start, end, tuple(run)) for start, end, run in runs]

    def unsupported(self, threshold: float = THRESHOLD, *, all_words: bool = False) -> list[CheckedWord]:
        """Return the words that the image does not support."""
        wanted = State.UNSUPPORTED
        return [word for word in self.words() if word.state(threshold, all_words=all_words) is wanted]

    def not_judged(self) -> list[CheckedWord]:
        """Return the words that may name something but have no reference."""
        return [word for word in self.words() if word.ratio is None and may_name(word.text)]

    def to_json(self, threshold: float = THRESHOLD) -> dict[str, Any]:
        """Return plain values."""
        return {
            "text": self.text,
            "threshold": threshold,
            "tokens": [
                {
                    "token": token.token,
                    "text": token.text,
                    "start": token.start,
                    "end": token.end,
                    "dmrr": token.evidence,
                    "b": token.reference,
                    "s": token.strength,
                    "ratio": token.ratio,
                    "state": token.state(threshold),
                }
                for token in self.tokens
            ],
            "words": [
                {
                    "text": word.text,
                    "start": word.start,
                    "end": word.end,
                    "s": word.strength,
                    "ratio": word.ratio,
                    "state": word.state(threshold),
                }
                for word in self.words()
            ],
        }


def check_tokens(
    text: str,
    ids: Sequence[int],
    offsets: Sequence[tuple[int, int]],
    evidence: Tensor,
    table: TableLike,
) -> Checked:
    """Compare each token of a text with its reference; ``evidence`` (V,) is that of the image."""

    def compare(token: int) -> tuple[float | None, float | None, float | None]:
        reference = table.reference(token)
        if reference is None:
            return None, None, None
        value = float(evidence[token])
        return value, reference, float(strength(reference, np.array(value), table.b0))

    compared = {token: compare(token) for token in set(ids)}
    return Checked(
        text,
        tuple(
            CheckedToken(token, text[start:end], start, end, *compared[token])
            for token, (start, end) in zip(ids, offsets, strict=True)
        ),
    )
