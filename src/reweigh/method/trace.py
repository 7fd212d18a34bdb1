"""The trace of an intervention: every column of the paper's mechanism table, step by step.

Recording keeps small tensors on the device while decoding runs; they become plain numbers when the trace is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from reweigh.method.edit import Candidates
from reweigh.text import grid


@dataclass(frozen=True)
class CandidateRow:
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
        """Return plain values, named as in the mechanism table."""
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
    candidates: tuple[CandidateRow, ...]
    winner_before: int
    winner_after: int

    @property
    def changed(self) -> bool:
        """Whether the edit moved the argmax."""
        return self.winner_before != self.winner_after

    def plot_rows(self, words: Mapping[int, str] | None = None) -> list[dict[str, Any]]:
        """Return candidates for the mechanism plot: by text, winners marked; ``words`` are whole, by token."""
        return [
            {
                **row.to_json(),
                "token": row.text,
                "word": (words or {}).get(row.token),
                "before_winner": row.token == self.winner_before,
                "after_winner": row.token == self.winner_after,
            }
            for row in self.candidates
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
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
        candidates: Candidates (n, C) of the rows that have evidence.
        shifts: What each lost.
        evidence: DMRR of these candidates (n, C), 0 where not registered.
        strengths: s of the same.
        before: Winner of every row of the batch (B,).
        after: Winner after the edit.
        rows: Rows of the batch that the n rows are; ``None`` if all have evidence.
    """

    candidates: Candidates
    shifts: Tensor
    evidence: Tensor
    strengths: Tensor
    before: Tensor
    after: Tensor
    rows: Tensor | None = None

    def index(self, row: int) -> int | None:
        """Return which of the n a row of the batch is; ``None`` if it has no evidence and was not edited."""
        if self.rows is None:
            return row
        rows: list[int] = self.rows.tolist()
        return rows.index(row) if row in rows else None


class Observer(Protocol):
    """Receives every edited step of a run."""

    def record(self, recorded: Recorded) -> None:
        """Receive one step."""
        ...


class Trace:
    """All steps of one run.

    Args:
        scale: b0 of the table.
        beta: The maximum penalty, or one for each row of the prompt.
        references: b(v) over the vocabulary, NaN where not registered.
        decode: Turns a token id into text.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
        >>> picture = render(scene("evaluation", 3), 112)
        >>> rw = reweigh.attach(model, processor, table=world.table_path())
        >>> with rw.using(trace=True) as run:
        ...     text = rw.describe(picture, max_new_tokens=5)
        >>> run.trace
        <Trace of 5 steps, layer 2; the edit changed the winner at 0 of them>
    """

    def __init__(
        self,
        *,
        scale: float,
        beta: float | Sequence[float],
        layer: int,
        references: Tensor,
        decode: Callable[[int], str],
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

    def __repr__(self) -> str:
        changed = len(self._changed())
        return f"<Trace of {len(self)} steps, layer {self.layer}; the edit changed the winner at {changed} of them>"

    def _repr_html_(self) -> str:
        rows = [
            (step.index, self._decode(step.winner_before).strip(), self.word(step.index), f"{lost:.3f}")
            for step, lost in self._changed()
        ]
        title = f"{len(self)} steps, layer {self.layer}; steps whose winner the edit changed (row 0)"
        return grid(title, ("step", "suppressed (its first piece)", "emitted", "penalty"), rows)

    def word(self, index: int) -> str:
        """Return the whole word that a step of row 0 wrote a piece of; punctuation and blanks as they are."""
        pieces = [self._decode(int(recorded.after[0])) for recorded in self._recorded]
        if not pieces[index].strip()[:1].isalpha():
            return pieces[index].strip()
        first = last = index
        while first > 0 and pieces[first][:1].isalpha() and pieces[first - 1].strip()[-1:].isalpha():
            first -= 1
        while last + 1 < len(pieces) and pieces[last + 1][:1].isalpha():
            last += 1
        return "".join(pieces[first : last + 1]).strip()

    def _changed(self) -> list[tuple[Step, float]]:
        """Return the steps of row 0 at which the edit changed the winner, with what the former winner lost."""
        found = []
        for step in self.steps():
            if step.changed:
                lost = next((row.shift for row in step.candidates if row.token == step.winner_before), 0.0)
                found.append((step, lost))
        return found

    def step(self, index: int, row: int = 0) -> Step:
        """Return one step (0-based) of one row of the batch."""
        recorded = self._recorded[index]
        return Step(
            index=index,
            row=row,
            candidates=self._candidates(recorded, row),
            winner_before=int(recorded.before[row]),
            winner_after=int(recorded.after[row]),
        )

    def steps(self, row: int = 0) -> Iterator[Step]:
        """Yield all steps of one row."""
        for index in range(len(self)):
            yield self.step(index, row)

    def to_json(self, row: int = 0) -> dict[str, Any]:
        """Return the whole trace of one row."""
        return {
            "b0": self.scale,
            "beta": self.beta if isinstance(self.beta, float) else list(self.beta),
            "layer": self.layer,
            "steps": [step.to_json() for step in self.steps(row)],
        }

    def _candidates(self, recorded: Recorded, row: int) -> tuple[CandidateRow, ...]:
        own = recorded.index(row)
        if own is None:
            return ()
        count = int(recorded.candidates.keep[own].sum())
        return tuple(self._candidate(recorded, own, rank) for rank in range(count))

    def _candidate(self, recorded: Recorded, row: int, rank: int) -> CandidateRow:
        chosen = recorded.candidates
        token = int(chosen.ids[row, rank])
        logit, shift = float(chosen.logits[row, rank]), float(recorded.shifts[row, rank])
        reference = float(self._references[token])
        evidence = float(recorded.evidence[row, rank])
        registered = reference == reference  # not NaN
        return CandidateRow(
            token=token,
            text=self._decode(token),
            logit=logit,
            evidence=evidence if registered else None,
            reference=reference if registered else None,
            deficit=max(reference - evidence, 0.0) if registered else None,
            strength=float(recorded.strengths[row, rank]) if registered else None,
            shift=shift,
            edited=float(torch.tensor(logit) - torch.tensor(shift)),
        )
