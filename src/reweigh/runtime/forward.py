"""One forward pass, as a decoder sees it: made before the model runs, completed after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.runtime.sequence import Batch, Sequence

if TYPE_CHECKING:
    from reweigh.runtime.decoder import Request

PENDING = torch.empty(0)
"""Stands for the logits of a pass that is still running."""


@dataclass(slots=True, eq=False, kw_only=True)
class Pass:
    """One forward pass.

    Attributes:
        request: Whose pass it is.
        arguments: The forward's arguments by name.
        past: Columns that were in the cache before this pass.
        length: Columns of this pass.
        batch: What travels with the cache.
        rows: The sequence of each forward row; beams of one prompt row share one.
        prompts: The sequence of each row of ``inputs``.
        inputs: What ``generate`` was called with, by name; the forward's own arguments outside ``generate``.
        start: Column at which the prompt in ``inputs`` begins (after a kept cache).
        end: Column after the prompt; what follows it was generated.
        is_step: Whether it is one more token of a running generation, which cannot show a new image.
        layers: Blocks whose output the decoder reads.
        seen: Columns that were shown before this pass; more than ``past`` where there is no cache.
        cache: The key-value cache, if any.
        prompt: The prompt of the running ``generate``, as its engine keeps it.
        states: Residual stream (B, T, d) after each block asked for.
        logits: Raw logits (B, K, V) of the last K columns; there once the model has run.
        is_running: Whether the model is running it right now.
        edits_beside: Whether edits of the stream act on passes that the decoder runs beside it.
        scratch: What the decoder keeps for itself while the pass lasts.
    """

    request: Request
    arguments: Mapping[str, Any]
    past: int
    length: int
    batch: Batch
    rows: list[Sequence]
    prompts: list[Sequence]
    inputs: Mapping[str, Any]
    start: int
    end: int
    seen: int = 0
    is_step: bool = False
    layers: frozenset[int] = frozenset()
    cache: Any = None
    prompt: Any = None
    states: dict[int, Tensor] = field(default_factory=dict)
    logits: Tensor = PENDING
    is_running: bool = False
    edits_beside: bool = False
    scratch: Any = None

    @property
    def has_image(self) -> bool:
        """Whether any row has an image."""
        return any(row.positions for row in self.rows)

    @property
    def mask(self) -> Tensor | None:
        """Attention mask (B, n) of the columns up to the end of the pass, if there is one."""
        mask = self.arguments.get("attention_mask")
        return mask if isinstance(mask, Tensor) and mask.ndim == 2 else None

    def sequences(self, count: int) -> list[Sequence]:
        """The sequences of ``count`` rows: the pass's own, or those of a branch that reads each prompt once."""
        return self.rows if count == len(self.rows) else self.prompts

    def new(self) -> list[tuple[int, Sequence, list[int]]]:
        """Each sequence with visual columns first shown here: a forward row of it, itself, its columns in this pass."""
        first, last = max(self.seen, self.past), self.past + self.length
        found, done = [], set()
        for row, sequence in enumerate(self.rows):
            if sequence.number in done or not sequence.positions or sequence.positions[-1] < first:
                continue
            done.add(sequence.number)
            columns = [first - self.past + column for column in sequence.between(first, last)]
            if columns:
                found.append((row, sequence, columns))
        return found

    def shown(self, row: int) -> list[int]:
        """The visual columns of a forward row in this pass, relative to its start, new or not."""
        return self.rows[row].between(self.past, self.past + self.length)

    @contextmanager
    def edited_beside(self) -> Iterator[None]:
        """Let edits of the stream act on passes that the decoder runs beside this one, such as those of a branch."""
        before, self.edits_beside = self.edits_beside, True
        try:
            yield
        finally:
            self.edits_beside = before

    def start_of(self, row: int) -> int:
        """Index into the K logits of a row's first column at or after its last visual one; K if it has none."""
        positions, count = self.rows[row].positions, self.logits.shape[1]
        return max(0, positions[-1] - (self.past + self.length - count)) if positions else count

    def edited_columns(self) -> int:
        """How many of the pass's last columns a decoder edits: one where the prompt ends, all K of a later pass."""
        return 1 if self.past + self.length <= self.end else int(self.logits.shape[1])

    def is_whole(self) -> bool:
        """Whether it is a whole prompt or one more token, not a part of a prompt, a draft, or a repetition."""
        at_once = self.past <= self.start and self.past + self.length == self.end
        return at_once or self.length == 1

    def image_rows(self) -> Tensor:
        """Which forward rows have an image, bool (B,); the others are decoded as the base model decodes them."""
        return torch.tensor([bool(row.positions) for row in self.rows], device=self.logits.device)

    def with_last(self, edited: Tensor, rows: Tensor | None = None) -> Tensor:
        """The pass's logits with the last columns replaced by ``edited`` (B, n, V), in the given rows only."""
        logits = self.logits.float().clone()
        tail = logits[:, -edited.shape[1] :]
        tail.copy_(edited if rows is None else torch.where(rows[:, None, None], edited, tail))
        return logits
