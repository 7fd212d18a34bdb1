"""The evidence of running requests, and of prompts that were seen before.

Evidence depends on the image and on the text before it, so what was summed is kept under the prompt up to the end of each
of its images: a prefix that vLLM has cached is the same prefix, and a conversation that gains an image goes on from there.
Knows nothing of vLLM; whoever holds residual states can feed it.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import NumericsError
from reweigh.method.edit import spread
from reweigh.method.evidence import Reading, read_evidence
from reweigh.method.lens import Lens
from reweigh.method.readouts import DMRR
from reweigh.method.strength import strength
from reweigh.method.sums import ReadoutSums

MEASURED, RECALLED = "measured", "recalled"

SUM_BYTES = 8
"""Of each registered token, in memory."""

LOST = "its image was in the prefix cache and its evidence is not in memory"
NEVER = "its image was in the prefix cache, so its states were not computed"


def prompt_keys(tokens: Sequence[int], images: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """Keys of a prompt up to the end of each image; ``images`` are (identifier, offset, length) in their order."""
    digest, start, keys = hashlib.sha256(), 0, []
    for identifier, offset, length in images:
        end = max(start, offset + length)
        digest.update(np.asarray(tokens[start:end], dtype=np.int64).tobytes())
        digest.update(repr((identifier, offset, length)).encode())
        keys.append(digest.hexdigest())
        start = end
    return tuple(keys)


@dataclass(slots=True, eq=False)
class Entry:
    """One running request with an image.

    Attributes:
        keys: Its prompt up to the end of each image, for recall.
        positions: Visual positions P of its prompt, ascending.
        bounds: How many of the positions lie before the end of each image.
        beta: Maximum penalty; 0 for a request that is only measured.
        prompt: Tokens of its prompt.
        wanted: Whether it was to be edited.
        read: How many of the positions have been read.
        sums: What was read of them, by layer. Never changed, only replaced: requests and memory share them.
        strengths: s_I over the vocabulary (V,) on the device, once all positions are read.
        evidence: DMRR (L, V) where observations are made.
        source: Where finished evidence came from.
        reason: Why it cannot be edited, if it cannot.
        seconds: Time its evidence took.
        reported: Whether its outcome was reported.
        steps: Candidates by output position, where observations are made.
        serial: Tells entries apart for good; an address can come again.
    """

    keys: tuple[str, ...]
    positions: Sequence[int]
    beta: float
    prompt: int
    bounds: Sequence[int] = ()
    wanted: bool = True
    read: int = 0
    sums: dict[int, ReadoutSums] = field(default_factory=dict)
    strengths: Tensor | None = None
    evidence: Tensor | None = None
    source: str | None = None
    reason: str | None = None
    seconds: float = 0.0
    reported: bool = False
    steps: dict[int, tuple[Any, Any]] = field(default_factory=dict)
    serial: int = field(default_factory=itertools.count().__next__)

    @property
    def is_decided(self) -> bool:
        """Whether its evidence is complete, or can no longer become so."""
        return self.source is not None or self.reason is not None

    @property
    def is_edited(self) -> bool:
        """Whether its rows are to be edited."""
        return self.strengths is not None and self.beta > 0

    def give_up(self, reason: str) -> None:
        """Edit it no more, and report that anew."""
        self.strengths, self.reason, self.reported = None, reason, False


class Recall:
    """Sums of prompts on the device, each of ``size`` bytes; those used longest ago are dropped beyond ``limit`` bytes."""

    def __init__(self, limit: int, size: int) -> None:
        self.limit, self.size = limit, size
        self._held: OrderedDict[str, ReadoutSums] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str) -> ReadoutSums | None:
        """The sums of a prompt, or ``None``."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def put(self, key: str, sums: ReadoutSums) -> None:
        """Keep the sums of a prompt."""
        self._held[key] = sums
        self._held.move_to_end(key)
        while len(self._held) * self.size > self.limit:
            self._held.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Registered:
    """What a table says, on the device."""

    tokens: Tensor
    references: Tensor
    scale: float
    readout: str = DMRR


class Store:
    """Reads states into evidence, request by request.

    Args:
        lens: The model's norm and head.
        layers: Blocks whose states are fed, in the order of ``feed``'s ``states``.
        registered: The table's numbers; ``None`` keeps the evidence of the whole vocabulary (observation).
        limit: Bytes of evidence kept for recall.
    """

    def __init__(
        self,
        lens: Lens,
        layers: Sequence[int],
        registered: Registered | None,
        *,
        limit: int = 0,
        kernel: str = "auto",
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.lens = lens
        self.layers = tuple(layers)
        self.registered = registered
        self.readout = DMRR if registered is None else registered.readout
        self.kernel = kernel
        self.recall = Recall(limit, SUM_BYTES * (1 if registered is None else max(1, len(registered.tokens))))
        self.requests: dict[str, Entry] = {}
        self._clock = clock

    def feed(self, entry: Entry, computed: int, states: Sequence[Tensor]) -> None:
        """Take what one step computed of a request: the states of its positions ``computed`` and following.

        ``states`` holds a tensor (n, d) for each layer. Positions that were read before (a preempted request computes
        its prompt again) are not read twice; positions that were never computed here, because vLLM had them in its
        prefix cache, can only be recalled.
        """
        if entry.is_decided:
            return
        started = self._clock()
        first = bisect_left(entry.positions, computed)
        last = bisect_left(entry.positions, computed + len(states[0]))
        if first > entry.read:
            self.go_on(entry, first)
        if first > entry.read:
            self._join(entry, first)
        if first > entry.read:
            entry.reason = LOST if self.recall.limit else NEVER
            return
        try:
            self._read_up_to(last, entry, computed, states)
        except NumericsError as error:
            entry.reason = error.message
        entry.seconds += self._clock() - started

    def _read_up_to(self, last: int, entry: Entry, computed: int, states: Sequence[Tensor]) -> None:
        """Read the positions before ``last`` that were not read yet, image by image."""
        for bound, key in zip(entry.bounds, entry.keys, strict=True):
            stop = min(bound, last)
            if stop > entry.read:
                rows = torch.tensor(entry.positions[entry.read : stop], device=states[0].device) - computed
                for layer, state in zip(self.layers, states, strict=True):
                    self._read(entry, layer, state[rows])
                entry.read = stop
                if stop == bound and self.registered is not None:
                    self.recall.put(key, entry.sums[self.layers[0]])
        if entry.read == len(entry.positions):
            self._finish(entry)

    def go_on(self, entry: Entry, least: int = 1) -> None:
        """Let a request start after those of its images that are in memory, if they cover ``least`` of its positions."""
        for bound, key in reversed(list(zip(entry.bounds, entry.keys, strict=True))):
            known = self.recall.get(key) if bound >= max(least, entry.read + 1) else None
            if known is not None:
                entry.sums, entry.read = {self.layers[0]: known}, bound
                return

    def _join(self, entry: Entry, least: int) -> None:
        """Go on from what a running request has read of the same prompt.

        vLLM lets a prompt read the blocks of another one even while that is being computed, in the same step.
        """
        for other in self.requests.values():
            shared = sum(1 for own, its in zip(entry.keys, other.keys, strict=False) if own == its)
            if shared and other.sums and least <= other.read <= entry.bounds[shared - 1]:
                entry.sums, entry.read = dict(other.sums), other.read
                return

    def read(self, states: Tensor) -> Reading:
        """Read states (P, d) as the table's evidence was read."""
        table = self.registered
        tokens = None if table is None else table.tokens
        return read_evidence(self.lens, states, tokens, kernel=self.kernel, readouts=(self.readout,))

    def _read(self, entry: Entry, layer: int, states: Tensor) -> None:
        part = self.read(states).sums
        if layer in entry.sums:
            part.merge(entry.sums[layer])
        entry.sums[layer] = part

    def _finish(self, entry: Entry) -> None:
        evidence = torch.stack([entry.sums[layer].evidence(self.readout) for layer in self.layers])
        entry.source = MEASURED
        if self.registered is None:
            entry.evidence = evidence
            entry.sums.clear()
        else:
            self._lay_out(entry, evidence[0])

    def recall_into(self, entry: Entry) -> bool:
        """Give a new request the evidence of an equal prompt, if that is still in memory."""
        started = self._clock()
        known = self.recall.get(entry.keys[-1])
        if known is None:
            return False
        self._lay_out(entry, known.evidence(self.readout))
        entry.source = RECALLED
        entry.seconds = self._clock() - started
        return True

    def _lay_out(self, entry: Entry, evidence: Tensor) -> None:
        """Suppression strengths over the vocabulary, for requests that are edited."""
        table = self.registered
        if entry.beta > 0 and table is not None:
            values = strength(table.references, evidence.to(table.references.device), table.scale)
            entry.strengths = spread(values, table.tokens, self.lens.vocab_size)
