"""The shape of what a model sees: grids of patches, and where one patch lies in them.

Knows no family and no model; `families.positions` puts these shapes onto the columns of a sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patch:
    """Where a visual position lies.

    Attributes:
        image: Which image (or video) of the prompt, counted in its row of the batch.
        tile: Which view of that image: a crop, a frame, or the whole image at another resolution.
        row: Row of the patch in the tile's grid, from the top.
        col: Column of the patch in the tile's grid, from the left.
        rows: Rows of the grid.
        cols: Columns of the grid.
    """

    image: int
    tile: int
    row: int
    col: int
    rows: int
    cols: int

    @property
    def box(self) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) of the patch as fractions of the tile's view."""
        return (
            self.col / self.cols,
            self.row / self.rows,
            (self.col + 1) / self.cols,
            (self.row + 1) / self.rows,
        )


VisualPosition = tuple[int, Patch | None]
"""A column of a sequence that carries image content, and the patch it shows if the family has a grid."""


@dataclass(frozen=True, slots=True)
class View:
    """One grid of features as the sequence holds it, row by row.

    Attributes:
        rows: Rows of the grid.
        cols: Columns of the grid.
        lead: Features before the grid that show the image as a whole (a class token).
        row_end: Control features after each row (a newline); they carry no image content.
        end: Control features after the grid.
    """

    rows: int
    cols: int
    lead: int = 0
    row_end: int = 0
    end: int = 0

    @property
    def length(self) -> int:
        """Features in the sequence, control features included."""
        return self.lead + self.rows * (self.cols + self.row_end) + self.end

    def features(self, image: int, tile: int) -> Iterator[tuple[bool, Patch | None]]:
        """Yield each feature in order: whether it shows the image, and its patch."""
        yield from [(True, None)] * self.lead
        for row in range(self.rows):
            for col in range(self.cols):
                yield True, Patch(image, tile, row, col, self.rows, self.cols)
            yield from [(False, None)] * self.row_end
        yield from [(False, None)] * self.end


Picture = tuple[View, ...]
"""The views of one image, in sequence order; a video is a picture whose views are its frames."""


@dataclass(frozen=True, slots=True)
class Run:
    """Adjacent columns of one row that hold the same placeholder id."""

    token: int
    length: int
