"""The evidence of each token that a request wrote, for requests that ask for it; in the form that ``reweigh serve`` gives.

The worker sends the evidence of the registered tokens once, and of each step the best token before and after the edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reweigh.engines.vllm.report import DMRR
from reweigh.method.strength import strength
from reweigh.tables.table import ReferenceTable

UNKNOWN: dict[str, float | None] = {"dmrr": None, "b": None, "s": None}


class Shown:
    """What one request shows of its tokens.

    Args:
        table: The references.
        tokenizer: Turns tokens into text.
        state: vLLM's state of the request, whose detokenizer holds the text so far.
        is_delta: Whether each output has its own tokens only.
    """

    def __init__(self, table: ReferenceTable, tokenizer: Any, state: Any, *, is_delta: bool) -> None:
        self.table, self.tokenizer, self.state, self.is_delta = table, tokenizer, state, is_delta
        self.tokens: list[dict[str, Any]] = []
        self.changed = 0
        self._dmrr: Sequence[float] | None = None
        self._placed = self._written = self._end = 0

    def hear(self, told: dict[str, Any], tokens: Sequence[int], winners: Sequence[Sequence[int]]) -> None:
        """Take in one step: the outcome, the tokens it sampled, and the best before and after the edit of each."""
        self.place()
        self._dmrr = told.pop(DMRR, self._dmrr)
        for token, (before, after) in zip(tokens, winners, strict=False):
            replaced = None if before == after else {"token": before, "text": self._text(before)}
            self.changed += replaced is not None
            known = {"step": len(self.tokens), "token": token, "text": self._text(token)}
            self.tokens.append({**known, **self._support(token), "replaced": replaced})

    def place(self) -> None:
        """Give the tokens that have none their place in the text, which has grown by them."""
        new = self.tokens[self._placed :]
        if not new:
            return
        whole = len(self.state.detokenizer.output_text)
        for one in new:
            start = self._end
            self._end = whole if one is new[-1] else min(whole, start + len(one["text"]))
            one["start"], one["end"] = start, self._end
        self._placed = len(self.tokens)

    def write(self, told: Mapping[str, Any], count: int) -> dict[str, Any]:
        """An outcome with the tokens of an output, which has ``count`` of them."""
        self.place()
        first = self._written if self.is_delta else 0
        self._written = first + count
        tokens = self.tokens[first : self._written]
        return {
            **told,
            "decoder": "reweigh",
            "b0": self.table.scale,
            "changed": self.changed,
            "tokens": tokens,
        }

    def _support(self, token: int) -> dict[str, float | None]:
        reference = self.table.reference(token)
        if reference is None or self._dmrr is None:
            return UNKNOWN
        value = float(self._dmrr[int(np.searchsorted(self.table.tokens, token))])
        share = float(strength(reference, np.array(value), self.table.scale))
        return {"dmrr": value, "b": reference, "s": share}

    def _text(self, token: int) -> str:
        return str(self.tokenizer.decode([token], skip_special_tokens=False))
