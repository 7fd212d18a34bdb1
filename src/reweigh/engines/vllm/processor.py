"""The edit as a logits processor: one object implements the interfaces of both of vLLM's model runners.

It is put before vLLM's own processors, so that it sees the raw logits (after a grammar's mask): bias, penalties, temperature
and sampling act on edited logits, as in the transformers engine.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import MARK
from reweigh.errors import NumericsError
from reweigh.method.edit import EditedStep, StepEditor, candidates

UNSOUND = "its next-token logits formed no distribution"


class Processor:
    """Edits the rows of requests that have evidence, or notes the candidates of those that are observed."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.observes = bool(capture.settings.observe)
        self.seconds = 0.0
        self.unsound: deque[Any] = deque()
        self._key: tuple[Any, ...] = ()
        self._chosen: list[tuple[int, Any]] = []
        self._editor: StepEditor | None = None
        self._shown: tuple[Tensor, Tensor] | None = None
        self._late: list[Late] = []

    # The V1 runner

    def is_argmax_invariant(self) -> bool:
        """An edit can change the best token."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Rows are taken from the step itself, so there is nothing to follow."""

    # The V2 runner

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Tell whether ``apply`` needs this request's logits."""
        return self.observes or bool((sampling_params.extra_args or {}).get(MARK))

    def apply_staged_writes(self) -> None:
        """Nothing is staged."""

    # Both

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """Edit the logits (rows, V) of one step or of part of it; ``ctx`` comes from the V2 runner."""
        started = time.perf_counter()
        if self.observes:
            self._observe(logits, self.capture.rows(len(logits), ctx))
            return logits
        self.settle()
        key = self.capture.key(len(logits), ctx)
        if key != self._key:
            self._lay_out(self.capture.rows(len(logits), ctx), logits.device)
            self._key = key
        if self._editor is None:
            return logits
        try:
            step = self._editor.step(logits)
        except NumericsError:
            return self._edit_apart(logits)
        self._remember(step)
        self.seconds += time.perf_counter() - started
        return step.logits

    def _remember(self, step: EditedStep) -> None:
        """Start copying values to the host that only the device knows."""
        sound = step.candidates.sound
        if sound is not None:
            self._late.append(Late([entry for _, entry in self._chosen], _to_host(sound)))
        if self._shown is not None:
            rows, places = self._shown
            before = step.candidates.ids[places, 0]
            after = step.logits[rows].argmax(dim=1)
            entries = [entry for _, entry in self._chosen if entry.is_shown]
            self._late.append(Late(entries, winners=_to_host(torch.stack([before, after], dim=1))))

    def late(self) -> list[Late]:
        """Take the values of this step that arrive later."""
        found, self._late = self._late, []
        return found

    def settle(self) -> None:
        """Stop editing requests whose logits formed no distribution on an accelerator, as is known by now."""
        while self.unsound:
            entry = self.unsound.popleft()
            if entry.reason is None:
                self._give_up(entry, UNSOUND)

    def _give_up(self, entry: Any, reason: str) -> None:
        entry.give_up(reason)
        self.capture.tell(entry)

    def _edit_apart(self, logits: Tensor) -> Tensor:
        """Edit row by row, and stop editing requests whose logits form no distribution."""
        edited = logits.float().clone()
        for row, entry in self._chosen:
            if not entry.is_edited:  # given up at an earlier row: a request has one for each drafted token
                continue
            alone = StepEditor(entry.strengths[None], torch.tensor([entry.beta], device=logits.device))
            try:
                step = alone.step(logits[row : row + 1])
            except NumericsError as error:
                self._give_up(entry, error.message)
                continue
            edited[row] = step.logits[0]
            if entry.is_shown:
                winners = torch.stack([step.candidates.ids[:, 0], step.logits.argmax(dim=1)], dim=1)
                self._late.append(Late([entry], winners=winners))
        return edited

    def _lay_out(self, rows: list[tuple[Any, int]], device: torch.device) -> None:
        """Lay out the strengths of edited rows; they stay until a request joins or leaves."""
        chosen = [
            (row, entry) for row, (entry, _) in enumerate(rows) if entry is not None and entry.is_edited
        ]
        self._chosen, self._editor, self._shown = chosen, None, None
        if not chosen:
            return
        strengths = torch.stack([entry.strengths for _, entry in chosen])
        betas = torch.tensor([entry.beta for _, entry in chosen], dtype=torch.float32)
        places = torch.tensor([row for row, _ in chosen]).to(device, non_blocking=True)
        some = None if len(chosen) == len(rows) else places
        self._editor = StepEditor(strengths, betas.to(device, non_blocking=True), some)
        shown = [place for place, (_, entry) in enumerate(chosen) if entry.is_shown]
        if shown:
            own = torch.tensor(shown).to(device, non_blocking=True)
            self._shown = places[own], own

    def _observe(self, logits: Tensor, rows: list[tuple[Any, int]]) -> None:
        found = candidates(logits)
        ids, keep = found.ids.cpu().numpy(), found.keep.cpu().numpy()
        for row, (entry, place) in enumerate(rows):
            if entry is None:
                continue
            position = self.capture.ends[place] - entry.prompt
            if position >= 0:  # a prompt that is not complete samples nothing
                entry.steps[position] = (ids[row], keep[row])


@dataclass(slots=True)
class Late:
    """Values of some rows on their way to the host.

    Attributes:
        entries: The request of each row.
        sound: Whether each row's logits formed a distribution.
        winners: The best token of each row before and after the edit.
    """

    entries: list[Any]
    sound: Tensor | None = None
    winners: Tensor | None = None


def _to_host(values: Tensor) -> Tensor:
    """Start a copy to the host; it is complete once the device has caught up."""
    if values.is_cpu:
        return values
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
