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

from reweigh_vllm.capture import Capture
from reweigh_vllm.core import EditedStep, NumericsError, StepEditor, candidates
from reweigh_vllm.reading import Entry
from reweigh_vllm.settings import MARK, SHOWN

UNSOUND = "its next-token logits formed no distribution"


class Processor:
    """Edits the rows of requests that have evidence, or notes the candidates of those that are observed."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.observes = bool(capture.settings.observe)
        self.seconds = 0.0
        self.unsound: deque[Entry] = deque()
        self._key: tuple[Any, ...] = ()
        self._chosen: list[tuple[int, Entry]] = []
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
        asked = sampling_params.extra_args or {}
        return self.observes or bool(asked.get(MARK) or asked.get(SHOWN))

    def apply_staged_writes(self) -> None:
        """Nothing is staged."""

    # Both

    def apply(self, logits: Tensor, ctx: Any = None) -> Tensor:
        """Edit the logits (rows, V) of one step or of part of it; ``ctx`` comes from the V2 runner."""
        started = time.perf_counter()
        if self.observes:
            self._observe(logits, self.capture.rows(len(logits), ctx))
            return logits
        while self.unsound:  # found by an accelerator in an earlier step
            self._give_up(self.unsound.popleft())
        key = self.capture.key(len(logits), ctx)
        if key != self._key:
            self._lay_out(self.capture.rows(len(logits), ctx), logits.device)
            self._key = key
        if self._editor is None:
            return logits
        try:
            step = self._editor.step(logits)
        except NumericsError:  # on a CPU, which refuses such logits at once
            is_sound = (logits.softmax(dim=-1, dtype=torch.float32).amax(dim=1) > 0).tolist()
            for row, entry in self._chosen:
                if not is_sound[row]:
                    self._give_up(entry)
            return self.apply(logits, ctx)
        self._remember(step)
        self.seconds += time.perf_counter() - started
        return step.logits

    def _give_up(self, entry: Entry) -> None:
        if entry.reason is None:
            entry.give_up(UNSOUND)
            self.capture.tell(entry)

    def _remember(self, step: EditedStep) -> None:
        """Start copying values to the host that only the device knows."""
        entries = [entry for _, entry in self._chosen]
        if step.candidates.sound is not None:
            self._late.append(Late(entries, sound=_to_host(step.candidates.sound)))
        if self._shown is not None:
            rows, places = self._shown
            winners = torch.stack([step.candidates.ids[places, 0], step.logits[rows].argmax(dim=1)], dim=1)
            self._late.append(Late([entry for entry in entries if entry.is_shown], winners=_to_host(winners)))

    def late(self) -> list[Late]:
        """Take the values of this step that arrive later."""
        found, self._late = self._late, []
        return found

    def _lay_out(self, rows: list[tuple[Entry | None, int]], device: torch.device) -> None:
        """Lay out the strengths of edited rows; they stay until a request joins or leaves."""
        chosen = [(row, entry) for row, (entry, _) in enumerate(rows) if entry and entry.needs_logits]
        self._chosen, self._editor, self._shown = chosen, None, None
        if not chosen:
            return
        strengths = torch.stack([entry.strengths for _, entry in chosen if entry.strengths is not None])
        betas = torch.tensor([entry.beta for _, entry in chosen], dtype=torch.float32)
        places = torch.tensor([row for row, _ in chosen]).to(device, non_blocking=True)
        some = None if len(chosen) == len(rows) else places
        self._editor = StepEditor(strengths, betas.to(device, non_blocking=True), some)
        shown = [place for place, (_, entry) in enumerate(chosen) if entry.is_shown]
        if shown:
            index = torch.tensor(shown).to(device, non_blocking=True)
            self._shown = places[index], index

    def _observe(self, logits: Tensor, rows: list[tuple[Entry | None, int]]) -> None:
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

    entries: list[Entry]
    sound: Tensor | None = None
    winners: Tensor | None = None


def _to_host(values: Tensor) -> Tensor:
    """Start a copy to the host; it is complete once the device has caught up."""
    if values.is_cpu:
        return values
    return torch.empty(values.shape, dtype=values.dtype, pin_memory=True).copy_(values, non_blocking=True)
