"""The evidence of running requests, and of prompts that were seen before.

Evidence depends on the image and on the text before it, so it is kept under the prompt up to the end of its last image:
a prefix that vLLM has cached is the same prefix. Knows nothing of vLLM; whoever holds residual states can feed it.
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

from reweigh.method.intervene.edit import spread
from reweigh.method.measure.evidence import Reading, read_evidence
from reweigh.method.measure.lens import Lens
from reweigh.method.measure.readouts import DMRR
from reweigh.method.measure.sums import ReadoutSums
from reweigh.method.strength import strength

MEASURED, RECALLED = "measured", "recalled"


def prompt_key(tokens: Sequence[int], images: Iterable[tuple[str, int, int]]) -> str:
    """Key of a prompt up to the end of its last image; ``images`` are (identifier, offset, length)."""
    placed = list(images)
    end = max(offset + length for _, offset, length in placed)
    digest = hashlib.sha256(np.asarray(tokens[:end], dtype=np.int64).tobytes())
    digest.update(repr(placed).encode())
    return digest.hexdigest()


@dataclass(slots=True, eq=False)
class Entry:
    """One running request with an image.

    Attributes:
        key: Its prompt, for recall.
        positions: Visual positions P of its prompt, ascending.
        beta: Maximum penalty; 0 for a request that is only measured.
        prompt: Tokens of its prompt.
        wanted: Whether it was to be edited.
        read: How many of the positions have been read.
        strengths: s_I over the vocabulary (V,) on the device, once all positions are read.
        evidence: DMRR (L, V) where observations are made.
        source: Where finished evidence came from.
        reason: Why it cannot be edited, if it cannot.
        seconds: Time its evidence took.
        reported: Whether its outcome was reported.
        steps: Candidates by output position, where observations are made.
        serial: Tells entries apart for good; an address can come again.
    """

    key: str
    positions: Sequence[int]
    beta: float
    prompt: int
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


class Recall:
    """Evidence vectors (R,) of prompts, on the device; those used longest ago are dropped beyond ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._held: OrderedDict[str, Tensor] = OrderedDict()

    def get(self, key: str) -> Tensor | None:
        """The evidence of a prompt, or ``None``."""
        if key in self._held:
            self._held.move_to_end(key)
        return self._held.get(key)

    def put(self, key: str, evidence: Tensor) -> None:
        """Keep the evidence of a prompt."""
        self.drop(key)
        if evidence.nbytes > self.limit:
            return
        self._held[key] = evidence
        self.bytes += evidence.nbytes
        while self.bytes > self.limit:
            self.drop(next(iter(self._held)))

    def drop(self, key: str) -> None:
        """Forget a prompt."""
        held = self._held.pop(key, None)
        self.bytes -= 0 if held is None else held.nbytes


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
        self.recall = Recall(limit)
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
            entry.sums.clear()
            entry.reason = (
                "its image was in the prefix cache and its evidence is no longer in memory"
                if self.recall.limit
                else "its image was in the prefix cache, so its states were not computed"
            )
            return
        first = entry.read
        if last > first:
            rows = torch.tensor(entry.positions[first:last], device=states[0].device) - computed
            for layer, state in zip(self.layers, states, strict=True):
                self._read(entry, layer, state[rows])
            entry.read = last
        if entry.read == len(entry.positions):
            self._finish(entry)
        entry.seconds += self._clock() - started

    def read(self, states: Tensor) -> Reading:
        """Read states (P, d) as the table's evidence was read."""
        table = self.registered
        tokens = None if table is None else table.tokens
        return read_evidence(self.lens, states, tokens, kernel=self.kernel, readouts=(self.readout,))

    def _read(self, entry: Entry, layer: int, states: Tensor) -> None:
        part = self.read(states).sums
        if layer in entry.sums:
            entry.sums[layer].merge(part)
        else:
            entry.sums[layer] = part

    def _finish(self, entry: Entry) -> None:
        evidence = torch.stack([entry.sums[layer].evidence(self.readout) for layer in self.layers])
        entry.sums.clear()
        entry.source = MEASURED
        if self.registered is None:
            entry.evidence = evidence
        else:
            self.recall.put(entry.key, evidence[0])
            self._lay_out(entry, evidence[0])

    def recall_into(self, entry: Entry) -> bool:
        """Give a new request the evidence of an equal prompt, if that is still in memory."""
        started = self._clock()
        known = self.recall.get(entry.key)
        if known is None:
            return False
        entry.source = RECALLED
        self._lay_out(entry, known)
        entry.seconds = self._clock() - started
        return True

    def _lay_out(self, entry: Entry, evidence: Tensor) -> None:
        """Suppression strengths over the vocabulary, for requests that are edited."""
        table = self.registered
        if entry.beta > 0 and table is not None:
            values = strength(table.references, evidence.to(table.references.device), table.scale)
            entry.strengths = spread(values, table.tokens, self.lens.vocab_size)
