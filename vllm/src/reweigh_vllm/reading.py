"""The evidence of running requests, and of prompts that were seen before.

Evidence depends on the image and the text before it, so sums are kept under the prompt up to the end of each image. A cached
prefix then finds its evidence, and a conversation that gains an image continues from the earlier ones. Knows nothing
about vLLM.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from reweigh_vllm.core import Lens, Memory, NumericsError, RankSum, spread, strength

SUM_BYTES = 8
"""Bytes in memory for each registered token."""

MEASURED, RECALLED = "measured", "recalled"
LOST = "its image was in the prefix cache and its evidence is not in memory"
NEVER = "its image was in the prefix cache, so its states were not computed"


@dataclass(frozen=True, eq=False, slots=True)
class References:
    """The numbers of a table: references b(v) of its tokens (R,), ascending, and the scale b0."""

    tokens: Tensor
    values: Tensor
    scale: float


@dataclass(slots=True, eq=False, kw_only=True)
class Entry:
    """One running request with an image.

    Attributes:
        name: vLLM's name of it.
        keys: Its prompt up to the end of each image, for recall.
        prompt: Tokens of its prompt.
        beta: Maximum penalty; 0 for a request that is only measured.
        is_asked: Whether its outcome is reported.
        is_shown: Whether the evidence of its tokens is reported.
        positions: Its visual positions, ascending.
        bounds: How many of them lie before the end of each image.
        read: How many of them have been read.
        sums: Their sums of reciprocal ranks, by layer. Replaced, never changed: requests share them.
        source: Where its evidence came from, once it is complete.
        reason: Why it cannot be edited, if it cannot.
        is_failed: Whether this is an error rather than an outcome.
        strengths: s_I over the vocabulary (V,), once its evidence is complete.
        evidence: DMRR (L, V) where observations are made.
        steps: Candidates by output position, where observations are made.
        seconds: Time its evidence took.
    """

    name: str
    keys: tuple[str, ...]
    prompt: int
    beta: float
    is_asked: bool = True
    is_shown: bool = False
    positions: Sequence[int] = ()
    bounds: Sequence[int] = ()
    read: int = 0
    sums: Mapping[int, RankSum] = field(default_factory=dict)
    source: str | None = None
    reason: str | None = None
    is_failed: bool = False
    strengths: Tensor | None = None
    evidence: Tensor | None = None
    steps: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def is_decided(self) -> bool:
        """Whether its evidence is complete, or can no longer become so."""
        return self.source is not None or self.reason is not None

    @property
    def needs_logits(self) -> bool:
        """Whether its rows are edited, or shown."""
        return self.strengths is not None and (self.beta > 0 or self.is_shown)

    def give_up(self, reason: str) -> None:
        """Stop editing it."""
        self.strengths, self.reason = None, reason

    def fail(self, reason: str) -> None:
        """End it with an error: its image is known, but its states are not."""
        self.give_up(reason)
        self.is_failed = True


class Store:
    """Reads states into requests, and remembers what was read.

    Args:
        lens: The model's norm and head.
        layers: Blocks to read; one where requests are edited.
        references: The table; ``None`` where observations are made.
        limit: Bytes of evidence kept for recall.
    """

    def __init__(
        self, lens: Lens, layers: Sequence[int], references: References | None = None, *, limit: int = 0
    ) -> None:
        self.lens, self.layers, self.references = lens, tuple(layers), references
        self.tokens = None if references is None else references.tokens
        self.memory = Memory(limit)
        self.requests: dict[str, Entry] = {}

    def feed(self, entry: Entry, start: int, states: Mapping[int, Tensor]) -> None:
        """Read what one step computed for a request: the states of its positions from ``start`` on.

        ``states`` has a tensor (n, d) for each layer. Positions are not read twice when a preempted request computes its
        prompt again. Positions in vLLM's prefix cache were not computed and can only be recalled.
        """
        if entry.is_decided:
            return
        started = time.perf_counter()
        first = bisect_left(entry.positions, start)
        if first > entry.read:
            self.resume(entry, first)
        if first > entry.read:
            self._join(entry, first)
        if first > entry.read:
            entry.reason = LOST if self.memory.limit else NEVER
            return
        try:
            self._read(entry, start, states)
        except NumericsError as error:
            entry.reason = error.message
        entry.seconds += time.perf_counter() - started

    def _read(self, entry: Entry, start: int, states: Mapping[int, Tensor]) -> None:
        last = bisect_left(entry.positions, start + len(states[self.layers[0]]))
        for bound, key in zip(entry.bounds, entry.keys, strict=True):
            stop = min(bound, last)
            if stop <= entry.read:
                continue
            columns = torch.tensor([position - start for position in entry.positions[entry.read : stop]])
            entry.sums = {
                layer: self.sum(states[layer][columns.to(states[layer].device)], entry.sums.get(layer))
                for layer in self.layers
            }
            entry.read = stop
            if stop == bound and self.tokens is not None:
                self.memory.put(key, (bound, entry.sums), SUM_BYTES * max(1, len(self.tokens)))
        if entry.read == len(entry.positions):
            self._finish(entry, MEASURED)

    def sum(self, states: Tensor, before: RankSum | None = None) -> RankSum:
        """Sum the reciprocal ranks at some states (P, d), after those ``before``."""
        found = RankSum(self.lens.rows, self.tokens)
        for chunk in torch.split(states, self.lens.chunk):
            found.add(self.lens.ranked(chunk))
        if before is not None:
            found.merge(before)
        return found

    def resume(self, entry: Entry, least: int = 1) -> None:
        """Skip the images of a request whose evidence is in memory, if they cover ``least`` of its positions."""
        for bound, key in reversed(list(zip(entry.bounds, entry.keys, strict=True))):
            known = self.memory.get(key) if bound >= max(least, entry.read + 1) else None
            if known is not None:
                entry.read, entry.sums = known
                return

    def _join(self, entry: Entry, least: int) -> None:
        """Continue from what a running request has read of the same prompt.

        vLLM lets a prompt read another one's blocks even in the step that computes them.
        """
        for other in self.requests.values():
            shared = sum(1 for own, its in zip(entry.keys, other.keys, strict=False) if own == its)
            if shared and other.sums and least <= other.read <= entry.bounds[shared - 1]:
                entry.read, entry.sums = other.read, other.sums
                return

    def recall_into(self, entry: Entry) -> bool:
        """Give a new request the evidence of an equal prompt, if it is still in memory."""
        started = time.perf_counter()
        known = self.memory.get(entry.keys[-1])
        if known is None:
            return False
        entry.read, entry.sums = known
        self._finish(entry, RECALLED)
        entry.seconds = time.perf_counter() - started
        return True

    def _finish(self, entry: Entry, source: str) -> None:
        """Lay out the strengths of a request, or the evidence of an observed one."""
        if self.references is None:
            entry.evidence = torch.stack([entry.sums[layer].evidence() for layer in self.layers])
            entry.sums = {}
        elif entry.beta > 0 or entry.is_shown:
            tokens, values, scale = self.references.tokens, self.references.values, self.references.scale
            strengths = strength(values, self.dmrr(entry).to(values.device), scale)
            entry.strengths = spread(strengths, tokens, self.lens.vocab_size)
        entry.source = source

    def dmrr(self, entry: Entry) -> Tensor:
        """Return the evidence of the registered tokens (R,)."""
        evidence: Tensor = entry.sums[self.layers[0]].evidence()
        return evidence
