"""The trace of an intervention: every column of the paper's mechanism table, step by step.

Recording keeps small tensors on the device while decoding runs; they become plain numbers when the trace is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reweigh.method.register.candidates import Candidates


@dataclass(frozen=True)
class Row:
    """One candidate at one step; evidence columns are ``None`` for a token that is not registered."""

    token: int
    text: str
    logit: float
    evidence: float | None
    reference: float | None
    deficit: float | None
    strength: float | None
    shift: float
    edited: float

    def to_json(self) -> dict[str, Any]:
        """Plain values, named as in the mechanism table."""
        return {
            "token": self.token,
            "text": self.text,
            "z": self.logit,
            "dmrr": self.evidence,
            "b": self.reference,
            "deficit": self.deficit,
            "s": self.strength,
            "shift": self.shift,
            "z_after": self.edited,
        }


@dataclass(frozen=True)
class Step:
    """One decoding step of one row: its candidates, best first, and the winner before and after the edit.

    A row without image has no candidates: nothing was done to it.
    """

    index: int
    row: int
    candidates: tuple[Row, ...]
    winner_before: int
    winner_after: int

    @property
    def changed(self) -> bool:
        """Whether the edit moved the argmax."""
        return self.winner_before != self.winner_after

    def plot_rows(self) -> list[dict[str, Any]]:
        """Candidates as the mechanism plot wants them: by their text, the winners marked."""
        return [
            {
                **row.to_json(),
                "token": row.text,
                "before_winner": row.token == self.winner_before,
                "after_winner": row.token == self.winner_after,
            }
            for row in self.candidates
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "step": self.index,
            "row": self.row,
            "winner_before": self.winner_before,
            "winner_after": self.winner_after,
            "candidates": [row.to_json() for row in self.candidates],
        }


@dataclass(frozen=True)
class Recorded:
    """Tensors of one step as the decoder had them.

    Attributes:
        chosen: Candidates (n, C) of the rows that have evidence.
        evidence: DMRR of these candidates (n, C), 0 where not registered.
        strengths: s of the same.
        shift: What each lost.
        before: Winner of every row of the batch (B,).
        after: Winner after the edit.
        rows: Places in the batch of the n rows; ``None`` if all have evidence.
    """

    chosen: Candidates
    evidence: Tensor
    strengths: Tensor
    shift: Tensor
    before: Tensor
    after: Tensor
    rows: Tensor | None = None

    def place(self, row: int) -> int | None:
        """Where a row of the batch is among the n; ``None`` if it has no evidence and nothing was done to it."""
        if self.rows is None:
            return row
        rows: list[int] = self.rows.tolist()
        return rows.index(row) if row in rows else None


class Trace:
    """All steps recorded while tracing was on.

    Args:
        scale: b0 of the table.
        beta: The maximum penalty.
        references: b(v) over the vocabulary, NaN where not registered.
        decode: Turns a token id into text.
    """

    def __init__(
        self, *, scale: float, beta: float, layer: int, references: Tensor, decode: Callable[[int], str]
    ) -> None:
        self.scale = scale
        self.beta = beta
        self.layer = layer
        self._references = references
        self._decode = decode
        self._recorded: list[Recorded] = []

    def record(self, recorded: Recorded) -> None:
        """Keep one step."""
        self._recorded.append(recorded)

    def __len__(self) -> int:
        return len(self._recorded)

    def step(self, index: int, row: int = 0) -> Step:
        """One step (0-based) of one row of the batch."""
        recorded = self._recorded[index]
        return Step(
            index=index,
            row=row,
            candidates=self._candidates(recorded, row),
            winner_before=int(recorded.before[row]),
            winner_after=int(recorded.after[row]),
        )

    def steps(self, row: int = 0) -> Iterator[Step]:
        """All steps of one row."""
        for index in range(len(self)):
            yield self.step(index, row)

    def to_json(self, row: int = 0) -> dict[str, Any]:
        """The whole trace of one row."""
        return {
            "b0": self.scale,
            "beta": self.beta,
            "layer": self.layer,
            "steps": [step.to_json() for step in self.steps(row)],
        }

    def _candidates(self, recorded: Recorded, row: int) -> tuple[Row, ...]:
        own = recorded.place(row)
        if own is None:
            return ()
        count = int(recorded.chosen.keep[own].sum())
        return tuple(self._candidate(recorded, own, place) for place in range(count))

    def _candidate(self, recorded: Recorded, row: int, place: int) -> Row:
        token = int(recorded.chosen.ids[row, place])
        logit, shift = float(recorded.chosen.logits[row, place]), float(recorded.shift[row, place])
        reference = float(self._references[token])
        evidence = float(recorded.evidence[row, place])
        registered = reference == reference  # not NaN
        return Row(
            token=token,
            text=self._decode(token),
            logit=logit,
            evidence=evidence if registered else None,
            reference=reference if registered else None,
            deficit=max(reference - evidence, 0.0) if registered else None,
            strength=float(recorded.strengths[row, place]) if registered else None,
            shift=shift,
            edited=float(torch.tensor(logit) - torch.tensor(shift)),
        )
