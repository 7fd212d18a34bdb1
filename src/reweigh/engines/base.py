"""What a listener is shown of a forward pass, before it and after it, and what a listener is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from reweigh.engines.transformers.trail import Trail


@dataclass(slots=True)
class Glimpse:
    """One forward pass, as a listener sees it.

    Attributes:
        arguments: The forward's arguments by name.
        past: Columns that were in the cache before this pass.
        length: Columns of this pass.
        repeat: Forward rows per prompt row (beams, ``num_return_sequences``).
        states: Residual stream (B, T, d) after each block asked for.
        logits: Raw logits (B, K, V) of the last K columns of this pass.
        trail: Memory of the sequence.
        cache: The key-value cache after this pass, if any.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        start: Column at which the prompt in ``inputs`` begins (after a kept cache).
        end: Column after the prompt; what follows it was generated.
    """

    arguments: Mapping[str, Any]
    past: int
    length: int
    repeat: int
    states: Mapping[int, Tensor]
    logits: Tensor
    trail: Trail
    cache: Any
    inputs: Mapping[str, Any] = field(default_factory=dict)
    start: int = 0
    end: int = 0

    def fresh(self) -> list[list[int]]:
        """For each prompt row, the visual columns first seen in this pass, relative to its start; empty if none."""
        return self.trail.unseen(self.past, self.length)

    def start_of(self, row: int) -> int:
        """Index into the K logits of a prompt row's first column at or after its last visual one."""
        columns = self.trail.columns[row]
        first = self.past + self.length - self.logits.shape[1]
        return max(0, columns[-1] - first) if columns else self.logits.shape[1]


class Listener(Protocol):
    """Receives every forward pass of a tapped model.

    Four further attributes are honoured where a listener has them: ``generation``, keyword defaults for
    ``generate`` (what the caller passes wins); ``loop``, a decoding loop for its ``custom_generate``;
    ``engage(tap)``, called once when the tap opens and returning what undoes it; ``before(Coming)``, called ahead of
    each forward pass.
    """

    @property
    def layers(self) -> frozenset[int]:
        """Blocks whose output stream is needed; -1 is the input of the first block."""

    def listen(self, glimpse: Glimpse) -> Tensor | None:
        """Look at one forward pass; return logits to put in place of the raw ones, or ``None``."""


@dataclass(frozen=True, slots=True)
class Coming:
    """A forward pass that is about to run: its size, and the visual columns that each prompt row will then have."""

    past: int
    length: int
    rows: int
    columns: list[list[int]]
