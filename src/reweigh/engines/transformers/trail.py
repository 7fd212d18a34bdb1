"""The trail of a sequence: which of its columns carry image content, and what a decoder remembers of them.

It lives on the key-value cache, so it must follow what happens to one: further prompts, cropping, repeated rows. Plain
lists; knows nothing of models or hooks.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from reweigh.errors import InputError, UnsupportedError
from reweigh.families.positions import Patch


@dataclass(slots=True)
class Segment:
    """Visual columns ``first..last`` seen in one forward pass, with what the decoder made of them, by prompt row."""

    first: int
    last: int
    value: list[Any]


@dataclass(slots=True)
class Trail:
    """What is known of one (batched) sequence: its visual columns by prompt row, and the decoder's memory.

    Attributes:
        columns: Visual columns by prompt row; they may run ahead of ``seen``, since a prompt's are noted before its
            first pass.
        patches: Where each of them lies in its image.
        segments: What the decoder made of the columns of each pass.
        memory: What the decoder derived from the segments, to be derived again when they change.
        branches: State of second forward passes beside the sequence; they follow the cache's rows themselves.
        seen: Columns shown so far.
        rows: Forward rows of the latest pass; several for a prompt row under beams.
        prompt: Number of the ``generate`` call that noted columns last.
    """

    columns: list[list[int]]
    patches: list[list[Patch | None]]
    segments: list[Segment] = field(default_factory=list)
    memory: dict[Any, Any] = field(default_factory=dict)
    branches: dict[str, Any] = field(default_factory=dict)
    seen: int = 0
    rows: int = 0
    prompt: int = 0

    def extend(self, start: int, columns: list[list[int]], patches: list[list[Patch | None]]) -> None:
        """Note the visual columns of new prompt tokens that begin at column ``start``."""
        self._repeat(len(columns))
        self._forget(start)  # noted for a prompt that was given up, e.g. by an exception
        for row, (new, where) in enumerate(zip(columns, patches, strict=True)):
            self.columns[row] += [start + column for column in new]
            self.patches[row] += where

    def _repeat(self, rows: int) -> None:
        """Give each row of a cache that was repeated (beams, returned sequences) a row of its own."""
        times, rest = divmod(rows, len(self.columns))
        if rest or not times:
            raise InputError(f"the cache holds {len(self.columns)} rows, but {rows} were given")
        if times > 1:
            self.columns = [list(row) for row in self.columns for _ in range(times)]
            self.patches = [list(row) for row in self.patches for _ in range(times)]
            for segment in self.segments:
                segment.value = [value for value in segment.value for _ in range(times)]
            self._clear()

    def _clear(self) -> None:
        self.memory.clear()
        self.branches.clear()

    def reorder(self, rows: Tensor) -> None:
        """Follow a cache whose rows were reordered or dropped: each keeps its own images."""
        chosen = rows.tolist()
        repeat = max(1, self.rows // len(self.columns))
        if [row // repeat for row in chosen] == [row // repeat for row in range(self.rows)]:
            return  # beams that change rows within their own prompt
        branches = dict(self.branches)
        self._repeat(max(self.rows, len(self.columns)))
        self.columns = [list(self.columns[row]) for row in chosen]
        self.patches = [list(self.patches[row]) for row in chosen]
        for segment in self.segments:
            segment.value = [segment.value[row] for row in chosen]
        self.rows = len(chosen)
        self.memory.clear()
        self.branches = branches  # they follow by themselves

    def repeat(self, times: int) -> None:
        """Follow a cache whose rows were repeated: they still belong to the same prompts."""
        self.rows *= times

    def _forget(self, start: int) -> None:
        for columns, patches in zip(self.columns, self.patches, strict=True):
            end = bisect_left(columns, start)
            del columns[end:], patches[end:]

    def rewind(self, length: int) -> None:
        """Forget everything at or after column ``length``, because the cache was cropped to it."""
        if length >= self.seen:
            return
        for segment in self.segments:
            if segment.first < length <= segment.last:
                raise UnsupportedError(
                    f"the cache was cropped to {length} positions, amid images that were read together "
                    f"(positions {segment.first}..{segment.last})",
                    hint="crop before or after all of them",
                )
        kept = [segment for segment in self.segments if segment.last < length]
        if len(kept) != len(self.segments):
            self.segments = kept
            self._clear()
        self._forget(length)
        self.seen = length

    @property
    def last(self) -> int:
        """The last visual column of any row, -1 when there is none."""
        return max((columns[-1] for columns in self.columns if columns), default=-1)

    def images(self, row: int) -> int:
        """How many images a row shows; one where their columns lie on no grid."""
        found = {patch.image for patch in self.patches[row] if patch is not None}
        return len(found) or int(bool(self.columns[row]))

    def unseen(self, past: int, length: int) -> list[list[int]]:
        """For each row, the visual columns of a pass that were not shown before, relative to its start."""
        low, high = max(self.seen, past), past + length
        if low > self.last:
            return []
        rows = []
        for columns in self.columns:
            inside = columns[bisect_left(columns, low) : bisect_left(columns, high)]
            rows.append([column - past for column in inside])
        return rows


def new_trail(rows: int) -> Trail:
    """A trail on which nothing is noted yet."""
    return Trail([[] for _ in range(rows)], [[] for _ in range(rows)])
