"""One row of a batch: where its images lie, and what has been read of them.

A batch is a list of rows that travels with a key-value cache. Beams are the same row several times, so that
reordering, selecting, repeating and copying rows are list operations. Knows no engine and no method.
"""

from __future__ import annotations

import copy
import itertools
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from reweigh.errors import InputError, ReweighError, UnsupportedError
from reweigh.method.grids import Patch, VisualPosition

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False, kw_only=True)
class Row:
    """One row: its visual positions, and what has been read of them.

    Attributes:
        index: Which row of the prompt it is.
        positions: Visual positions, ascending; known before they are read.
        patches: Where each of them lies in its image.
        bounds: How many of the positions lie before the end of each image.
        marks: What was read of the first n positions, by n. Values are replaced, never changed: rows share them.
        read: How many of the positions have been read: the last of the marks.
        reading: Everything read so far; ``None`` before the first image.
        reader: Who read the positions.
        strengths: s_I over the vocabulary (V,), once all positions are read.
        number: Never reused, unlike ``id()``.
    """

    index: int = 0
    positions: list[int] = field(default_factory=list)
    patches: list[Patch | None] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    marks: dict[int, Any] = field(default_factory=dict)
    read: int = 0
    reading: Any = None
    reader: Any = None
    strengths: Tensor | None = None
    number: int = field(default_factory=lambda: next(_numbers))

    @property
    def images(self) -> int:
        """How many images it shows; one where their positions lie on no grid."""
        return len(self.bounds)

    def between(self, first: int, last: int) -> list[int]:
        """Return the visual positions from ``first`` to before ``last``, relative to ``first``."""
        inside = self.positions[bisect_left(self.positions, first) : bisect_left(self.positions, last)]
        return [position - first for position in inside]

    def check_read(self, end: int | None = None) -> None:
        """Refuse visual positions before ``end`` that nobody read: without evidence the text would go unedited."""
        known = len(self.positions) if end is None else bisect_left(self.positions, end)
        if self.read < known:
            raise UnsupportedError(
                f"{known - self.read} of {known} visual positions were not read, so their evidence is unknown",
                hint="run `reweigh doctor` with this model, and report its class",
            )

    def mark(self, count: int, reading: Any) -> None:
        """Keep what was read of the first ``count`` positions."""
        self.marks[count] = reading
        self.read, self.reading, self.strengths = count, reading, None

    def forget(self) -> None:
        """Drop all readings, to free their memory."""
        self.marks, self.read, self.reading = {}, 0, None

    def extended(self, index: int, start: int, visual: list[VisualPosition]) -> Row:
        """Return this as row ``index`` of a further prompt that begins at ``start``, with its visual columns."""
        before = self.cropped(start)  # drops the positions of a prompt that failed
        if not visual and before.index == index:
            return before
        made = copy.copy(before)
        made.index, made.number = index, next(_numbers)
        patches = [patch for _, patch in visual]
        made.positions = before.positions + [start + column for column, _ in visual]
        made.patches = before.patches + patches
        made.bounds = before.bounds + [len(before.positions) + bound for bound in image_bounds(patches)]
        made.marks = dict(before.marks)
        made.strengths = None if visual else before.strengths
        return made

    def cropped(self, length: int) -> Row:
        """Return the row without everything at or after position ``length``: back to the last image bound."""
        count = bisect_left(self.positions, length)
        if count == len(self.positions):
            return self
        if self.read > count and count and count not in self.marks:
            before = max((end for end in self.marks if end < count), default=0)
            first, last = (
                self.positions[before],
                self.positions[min(end for end in self.marks if end > count) - 1],
            )
            raise UnsupportedError(
                f"the cache was cropped to {length} positions, inside an image that was read as a whole "
                f"(positions {first}..{last})",
                hint="crop before or after it",
            )
        marks = {end: reading for end, reading in self.marks.items() if end <= count}
        read = max(marks, default=0)
        return Row(
            index=self.index,
            positions=self.positions[:count],
            patches=self.patches[:count],
            bounds=sorted({min(bound, count) for bound in self.bounds} - {0}),
            marks=marks,
            read=read,
            reading=marks.get(read),
            reader=self.reader,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Row:
        made = copy.copy(self)  # what was read is never changed, so a copied cache shares it
        made.marks = dict(self.marks)
        memo[id(self)] = made
        return made


def image_bounds(patches: Iterable[Patch | None]) -> list[int]:
    """Return how many positions lie before the end of each image; positions without a grid are one image."""
    images = [None if patch is None else patch.image for patch in patches]
    inner = [end for end in range(1, len(images)) if images[end] != images[end - 1]]
    return [*inner, len(images)] if images else []


@dataclass(slots=True, eq=False)
class Batch:
    """The rows of a key-value cache.

    Attributes:
        owner: Number of the decoder that filled the cache.
        rows: The rows; the list is replaced whenever it changes.
        seen: Columns shown so far.
        turn: Number of the latest prompt that added positions.
        scratch: What a decoder derived from the rows; emptied when they change.
        branches: Second forward passes beside this one: each has ``reorder`` and ``repeat``, and follows its rows.
    """

    owner: int
    rows: list[Row]
    seen: int = 0
    turn: Any = None
    scratch: dict[Any, Any] = field(default_factory=dict)
    branches: dict[str, Any] = field(default_factory=dict)

    def extend(self, start: int, visual: list[list[VisualPosition]], rows: int) -> list[Row]:
        """Add the visual columns of a prompt that begins at ``start``, for a pass of ``rows`` rows.

        Returns:
            The rows of the prompt; beams repeat them.
        """
        if len(self.rows) != len(visual):
            raise InputError(f"the cache holds {len(self.rows)} rows, but {len(visual)} were given")
        times, rest = divmod(rows, len(visual))
        if rest or not times:
            raise ReweighError(f"a pass of {rows} rows cannot belong to {len(visual)} prompts")
        prompts = [
            row.extended(number, start, own)
            for number, (row, own) in enumerate(zip(self.rows, visual, strict=True))
        ]
        self._replace([row for row in prompts for _ in range(times)])
        return prompts

    def crop(self, length: int) -> None:
        """Forget everything at or after column ``length``, because the cache was cropped to it."""
        if length < self.seen:
            self._replace(self._each(lambda row: row.cropped(length)))
            self.seen = length

    def reorder(self, rows: Tensor) -> None:
        """Follow a cache whose rows were reordered, selected or dropped."""
        self._replace([self.rows[row] for row in rows.tolist()])
        for branch in self.branches.values():
            branch.reorder(rows)

    def repeat(self, times: int) -> None:
        """Follow a cache whose rows were repeated."""
        self._replace([row for row in self.rows for _ in range(times)])
        for branch in self.branches.values():
            branch.repeat(times)

    def _each(self, change: Callable[[Row], Row]) -> list[Row]:
        """Return the rows changed one by one; a row that beams share stays shared."""
        made = {id(row): change(row) for row in self.rows}
        return [made[id(row)] for row in self.rows]

    def _replace(self, rows: list[Row]) -> None:
        if len(rows) != len(self.rows) or any(a is not b for a, b in zip(rows, self.rows, strict=True)):
            self.rows = rows
            self.scratch.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> Batch:
        rows, branches = copy.deepcopy((self.rows, self.branches), memo)
        return Batch(self.owner, rows, self.seen, self.turn, branches=branches)
