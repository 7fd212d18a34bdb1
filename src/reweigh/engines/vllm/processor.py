"""The edit as a logits processor: the same object speaks the interfaces of both of vLLM's model runners.

It is put before vLLM's own processors, so that it sees the raw logits (after a grammar's mask): bias, penalties, temperature
and sampling act on edited logits, as in the transformers engine.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import MARK
from reweigh.errors import NumericsError
from reweigh.method.edit import StepEditor, candidates

UNSOUND = "its next-token logits formed no distribution"


class Processor:
    """Edits the rows of requests that have evidence, or notes the candidates of those that are observed."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.observes = bool(capture.settings.observe)
        self.seconds = 0.0
        self._key: tuple[Any, ...] = ()
        self._entries: list[Any] = []
        self._editor: Any = None

    # The V1 runner

    def is_argmax_invariant(self) -> bool:
        """An edit can change the best token."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Rows are taken from the step itself, so there is nothing to follow."""

    # The V2 runner

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether this request's logits have to be shown to ``apply``."""
        return self.observes or bool((sampling_params.extra_args or {}).get(MARK))

    def apply_staged_writes(self) -> None:
        """Nothing is staged."""

    # Both

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """Edit the logits (rows, V) of one step or of part of it; ``ctx`` comes from the V2 runner."""
        started = time.perf_counter()
        rows = self.capture.rows(len(logits), ctx)
        if self.observes:
            self._observe(logits, rows)
            return logits
        chosen = _edited(rows)
        if (key := _key(chosen, len(rows))) != self._key:
            self._settle()
            chosen = _edited(rows)
            key = _key(chosen, len(rows))
        if not chosen:
            return logits
        if key != self._key:
            self._lay_out(chosen, len(rows), logits.device)
            self._key = key
        try:
            edited: Tensor = self._editor(logits)
        except NumericsError:
            edited = self._edit_apart(logits, chosen)
        self.seconds += time.perf_counter() - started
        return edited

    def _edit_apart(self, logits: Tensor, chosen: list[tuple[int, Any]]) -> Tensor:
        """Edit row by row; a request whose logits form no distribution is no longer edited, the others are."""
        edited = logits.float().clone()
        for row, entry in chosen:
            if not entry.is_edited:  # given up at an earlier row: a request has one for each drafted token
                continue
            alone = StepEditor(entry.strengths[None], torch.tensor([entry.beta], device=logits.device))
            try:
                edited[row] = alone(logits[row : row + 1])[0]
            except NumericsError as error:
                entry.give_up(error.message)
        return edited

    def _lay_out(self, chosen: list[tuple[int, Any]], count: int, device: torch.device) -> None:
        """Lay out the strengths of these rows, once until another request joins or leaves."""
        strengths = torch.stack([entry.strengths for _, entry in chosen])
        betas = torch.tensor([entry.beta for _, entry in chosen], dtype=torch.float32)
        rows = torch.tensor([row for row, _ in chosen])
        self._editor = StepEditor(
            strengths,
            betas.to(device, non_blocking=True),
            None if len(chosen) == count else rows.to(device, non_blocking=True),
        )
        self._entries = [entry for _, entry in chosen]

    def _settle(self) -> None:
        """Give up requests whose logits formed no distribution on an accelerator, which is waited for only here."""
        for index in [] if self._editor is None else self._editor.unsound():
            self._entries[index].give_up(UNSOUND)

    def _observe(self, logits: Tensor, rows: list[tuple[Any, int]]) -> None:
        found = candidates(logits)
        ids, keep = found.ids.cpu().numpy(), found.keep.cpu().numpy()
        for row, (entry, place) in enumerate(rows):
            if entry is None:
                continue
            position = self.capture.ends[place] - entry.prompt
            if position >= 0:  # a prompt that is not complete samples nothing
                entry.steps[position] = (ids[row], keep[row])


def _edited(rows: list[tuple[Any, int]]) -> list[tuple[int, Any]]:
    """Rows whose request is edited, with its entry."""
    return [(row, entry) for row, (entry, _) in enumerate(rows) if entry is not None and entry.is_edited]


def _key(chosen: list[tuple[int, Any]], count: int) -> tuple[Any, ...]:
    """Tells one layout of rows from another."""
    return (count, *((row, entry.number) for row, entry in chosen))
