"""The evidence of running requests, and of prompts that were seen before.

Evidence depends on the table, the image and the text before it, so sums are kept under the table and the prompt up to the
end of each image. A cached prefix then finds its evidence, and a conversation that gains an image continues from the
earlier ones. Knows nothing about vLLM.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh.errors import NumericsError
from reweigh.runtime.memory import Memory
from reweigh.runtime.sequence import Sequence

SUM_BYTES = 8
"""Bytes in memory for each registered token."""

MEASURED, RECALLED = "measured", "recalled"
LOST = "its image was in the prefix cache and its evidence is not in memory"
NEVER = "its image was in the prefix cache, so its states were not computed"


@dataclass(slots=True, eq=False, kw_only=True)
class Entry(Sequence):
    """One running request with an image; its ``reader`` is that of its table, or the one that observes.

    Attributes:
        keys: Its table, and its prompt up to the end of each image, for recall.
        beta: Maximum penalty; 0 for a request that is only measured.
        prompt: Tokens of its prompt.
        wanted: Whether it was to be edited.
        source: Where its evidence came from, once it is complete.
        reason: Why it cannot be edited, if it cannot.
        evidence: DMRR (L, V) where observations are made.
        seconds: Time its evidence took.
        name: vLLM's name of it.
        is_shown: Whether what each of its steps changed is reported.
        steps: Candidates by output position, where observations are made.
    """

    keys: tuple[str, ...]
    beta: float
    prompt: int
    wanted: bool = True
    source: str | None = None
    reason: str | None = None
    evidence: Tensor | None = None
    seconds: float = 0.0
    name: str = ""
    is_shown: bool = False
    steps: dict[int, tuple[Any, Any]] = field(default_factory=dict)

    @property
    def is_decided(self) -> bool:
        """Whether its evidence is complete, or can no longer become so."""
        return self.source is not None or self.reason is not None

    @property
    def is_edited(self) -> bool:
        """Whether its rows are to be edited."""
        return self.strengths is not None and self.beta > 0

    def give_up(self, reason: str) -> None:
        """Stop editing it."""
        self.strengths, self.reason = None, reason


class Store:
    """Reads states into requests, and remembers what was read.

    Args:
        device: Where strengths are kept.
        limit: Bytes of evidence kept for recall.
    """

    def __init__(self, device: torch.device | str, *, limit: int = 0) -> None:
        self.device = device
        self.memory = Memory(limit)
        self.requests: dict[str, Entry] = {}

    def feed(self, entry: Entry, computed: int, states: Mapping[int, Tensor]) -> None:
        """Read what one step computed for a request: the states of its positions from ``computed`` on.

        ``states`` has a tensor (n, d) for each layer of its reader. Positions are not read twice when a preempted request
        computes its prompt again. Positions in vLLM's prefix cache were not computed and can only be recalled.
        """
        if entry.is_decided:
            return
        started = time.perf_counter()
        first = bisect_left(entry.positions, computed)
        if first > entry.read:
            self.resume(entry, first)
        if first > entry.read:
            self._join(entry, first)
        if first > entry.read:
            entry.reason = LOST if self.memory.limit else NEVER
            return
        try:
            self._read(entry, computed, states)
        except NumericsError as error:
            entry.reason = error.message
        entry.seconds += time.perf_counter() - started

    def _read(self, entry: Entry, computed: int, states: Mapping[int, Tensor]) -> None:
        before = entry.read
        entry.reader.feed(entry, computed, states)
        if entry.read == len(entry.positions):
            entry.source = MEASURED
            self._finish(entry)
        if entry.reader.registered is not None:
            size = SUM_BYTES * max(1, len(entry.reader.tokens))
            for bound, key in zip(entry.bounds, entry.keys, strict=True):
                if before < bound <= entry.read:
                    self.memory.put(key, entry.marks[bound], size)

    def resume(self, entry: Entry, least: int = 1) -> None:
        """Skip the images of a request whose evidence is in memory, if they cover ``least`` of its positions."""
        for bound, key in reversed(list(zip(entry.bounds, entry.keys, strict=True))):
            known = self.memory.get(key) if bound >= max(least, entry.read + 1) else None
            if known is not None:
                entry.mark(bound, known)
                return

    def _join(self, entry: Entry, least: int) -> None:
        """Continue from what a running request has read of the same prompt.

        vLLM lets a prompt read another one's blocks even in the step that computes them.
        """
        for other in self.requests.values():
            shared = sum(1 for own, its in zip(entry.keys, other.keys, strict=False) if own == its)
            if shared and other.read and least <= other.read <= entry.bounds[shared - 1]:
                entry.mark(other.read, other.made)
                return

    def _finish(self, entry: Entry) -> None:
        """Lay out the strengths of an edited request, or the evidence of an observed one."""
        reader = entry.reader
        if reader.registered is None:
            entry.evidence = torch.stack([reader.mean(entry, layer) for layer in reader.layers])
            entry.forget()
        elif entry.beta > 0:
            reader.finish(entry, self.device)

    def recall_into(self, entry: Entry) -> bool:
        """Give a new request the evidence of an equal prompt, if it is still in memory."""
        started = time.perf_counter()
        known = self.memory.get(entry.keys[-1])
        if known is None:
            return False
        entry.mark(next(iter(known.values())).sums.count, known)
        self._finish(entry)
        entry.source = RECALLED
        entry.seconds = time.perf_counter() - started
        return True
