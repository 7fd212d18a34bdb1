"""One row of a batch: where its images lie, and what has been read of them.

A batch is a list of sequences that travels with a key-value cache. Beams are the same sequence several times, so that
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
class Sequence:
    """One row: its visual positions, and what has been read of them.

    Attributes:
        row: Its row in the prompt.
        positions: Visual positions, ascending; known before they are read.
        patches: Where each of them lies in its image.
        bounds: How many of the positions lie before the end of each image.
        marks: The reading of the first n positions, by n. Values are replaced, never changed: sequences share them.
        read: How many of the positions have been read: the last of the marks.
        made: The reading of these positions; ``None`` before the first.
        reader: Who read the positions.
        strengths: s_I over the vocabulary (V,), once all positions are read.
        number: Unique for good, unlike an address.
    """

    row: int = 0
    positions: list[int] = field(default_factory=list)
    patches: list[Patch | None] = field(default_factory=list)
    bounds: list[int] = field(default_factory=list)
    marks: dict[int, Any] = field(default_factory=dict)
    read: int = 0
    made: Any = None
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

    def mark(self, count: int, made: Any) -> None:
        """Keep the reading of the first ``count`` positions."""
        self.marks[count] = made
        self.read, self.made, self.strengths = count, made, None

    def forget(self) -> None:
        """Drop all readings, to free their memory."""
        self.marks, self.read, self.made = {}, 0, None

    def extended(self, row: int, start: int, visual: list[VisualPosition]) -> Sequence:
        """Return the sequence as row ``row`` of a further prompt that begins at ``start``, with its visual columns."""
        before = self.cropped(start)  # drops the positions of a prompt that failed
        if not visual and before.row == row:
            return before
        made = copy.copy(before)
        made.row, made.number = row, next(_numbers)
        patches = [patch for _, patch in visual]
        made.positions = before.positions + [start + column for column, _ in visual]
        made.patches = before.patches + patches
        made.bounds = before.bounds + [len(before.positions) + bound for bound in image_bounds(patches)]
        made.marks = dict(before.marks)
        made.strengths = None if visual else before.strengths
        return made

    def cropped(self, length: int) -> Sequence:
        """Return the sequence without everything at or after position ``length``: back to the last image bound."""
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
        marks = {end: made for end, made in self.marks.items() if end <= count}
        read = max(marks, default=0)
        return Sequence(
            row=self.row,
            positions=self.positions[:count],
            patches=self.patches[:count],
            bounds=sorted({min(bound, count) for bound in self.bounds} - {0}),
            marks=marks,
            read=read,
            made=marks.get(read),
            reader=self.reader,
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Sequence:
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
    """The sequences of a key-value cache, one for each of its rows.

    Attributes:
        owner: Number of the decoder that filled the cache.
        rows: The sequences; the list is replaced whenever it changes.
        seen: Columns shown so far.
        prompt: The latest ``generate`` call that added positions.
        scratch: What a decoder derived from the rows; emptied when they change.
        branches: Second forward passes beside this one: each has ``reorder`` and ``repeat``, and follows its rows.
    """

    owner: int
    rows: list[Sequence]
    seen: int = 0
    prompt: Any = None
    scratch: dict[Any, Any] = field(default_factory=dict)
    branches: dict[str, Any] = field(default_factory=dict)

    def extend(self, start: int, visual: list[list[VisualPosition]], rows: int) -> list[Sequence]:
        """Add the visual columns of a prompt that begins at ``start``, and give each of ``rows`` its sequence.

        Returns:
            The sequence of each row of the prompt; beams repeat them.
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

    def _each(self, change: Callable[[Sequence], Sequence]) -> list[Sequence]:
        """Return the rows changed one by one; a sequence shared by several rows stays shared."""
        made = {id(row): change(row) for row in self.rows}
        return [made[id(row)] for row in self.rows]

    def _replace(self, rows: list[Sequence]) -> None:
        if len(rows) != len(self.rows) or any(a is not b for a, b in zip(rows, self.rows, strict=True)):
            self.rows = rows
            self.scratch.clear()

    def __deepcopy__(self, memo: dict[int, Any]) -> Batch:
        rows, branches = copy.deepcopy((self.rows, self.branches), memo)
        return Batch(self.owner, rows, self.seen, self.prompt, branches=branches)
