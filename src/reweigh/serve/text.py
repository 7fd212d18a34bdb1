"""The growing text of an answer: whole characters only, stop strings held back, equal in the end to decoding at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNFINISHED = "\ufffd"
"""What a tokenizer gives for the first bytes of a character."""


class GrowingText:
    """The text of tokens that come one by one.

    Attributes:
        text: All of it that is decoded, without white space at its start.
        stopped: Whether a stop string was found; the text ends before it.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str] = ()) -> None:
        self._tokenizer = tokenizer
        self._stops = tuple(stops)
        self._ids: list[int] = []
        self._from = 0
        self._read = 0
        self._sent = 0
        self.text = ""
        self.stopped = False

    def push(self, token: int) -> tuple[int, int]:
        """Take one more token; return which characters of the text it added."""
        self._ids.append(token)
        start = len(self.text)
        known = self._decode(self._ids[self._from : self._read])
        longer = self._decode(self._ids[self._from :])
        if not longer.endswith(UNFINISHED):
            self._from, self._read = self._read, len(self._ids)
            self._add(longer[len(known) :])
        return min(start, len(self.text)), len(self.text)

    def ready(self) -> str:
        """What can be sent now: not white space at the end, nor what may begin a stop string."""
        end = len(self.text) if self.stopped else len(self.text) - self._possible_stop()
        end = max(self._sent, len(self.text[:end].rstrip()))
        new = self.text[self._sent : end]
        self._sent = end
        return new

    def finish(self) -> str:
        """What is left to send once the last token came."""
        if not self.stopped:
            whole = self._decode(self._ids).strip()
            self.text = whole if whole.startswith(self.text[: self._sent]) else self.text
            self._cut(0)
        self.text = self.text.rstrip()
        new = self.text[self._sent :]
        self._sent = len(self.text)
        return new

    def _add(self, piece: str) -> None:
        longest = max(map(len, self._stops), default=0)
        before = len(self.text)
        self.text += piece if self.text else piece.lstrip()
        self._cut(max(0, before - longest))

    def _cut(self, start: int) -> None:
        """End the text before the first stop string."""
        found = [place for stop in self._stops if (place := self.text.find(stop, start)) >= 0]
        if found:
            self.text, self.stopped = self.text[: min(found)], True

    def _possible_stop(self) -> int:
        """Characters at the end that may begin a stop string."""
        return max(
            (
                length
                for stop in self._stops
                for length in range(1, len(stop))
                if self.text.endswith(stop[:length])
            ),
            default=0,
        )

    def _decode(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""
