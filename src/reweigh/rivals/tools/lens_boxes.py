"""A detector without another model: the region of the picture whose own positions are surest of a word.

Internal confidence localises it (``engines.transformers.confidence``). The model that writes a word finds it, so this is
weaker than a detector of its own; it needs no checkpoint. At most one box for a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from reweigh.engines.transformers.tap import Tap
from reweigh.errors import UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.processor_parts import crops_centre
from reweigh.families.prompts import DESCRIBE, build_inputs
from reweigh.rivals.halc.fields import Box
from reweigh.rivals.tools.branch import Runner
from reweigh.rivals.tools.confidence import confidence, word_tokens
from reweigh.runtime.decoder import in_range

if TYPE_CHECKING:
    from PIL.Image import Image

LENS = "lens"
"""The name of this detector as an option."""


def around_peak(grid: Tensor, threshold: float) -> Box | None:
    """The box of the cells that hang together with the largest and have half of it or more; None below ``threshold``."""
    values = grid.nan_to_num(0.0)
    rows, columns = values.shape
    peak = divmod(int(values.argmax()), columns)
    if float(values[peak]) < threshold:
        return None
    inside, edge = {peak}, [peak]
    while edge:
        row, column = edge.pop()
        for near in ((row - 1, column), (row + 1, column), (row, column - 1), (row, column + 1)):
            there = 0 <= near[0] < rows and 0 <= near[1] < columns and near not in inside
            if there and values[near] >= values[peak] / 2:
                inside.add(near)
                edge.append(near)
    down, across = zip(*inside, strict=True)
    return min(across) / columns, min(down) / rows, (max(across) + 1) / columns, (max(down) + 1) / rows


def of_centre(box: Box, size: tuple[int, int]) -> Box:
    """A box of the square in a picture's centre, which is all that some processors show, as one of the picture."""
    wide, high = (min(size) / side for side in size)
    left, top = (1 - wide) / 2, (1 - high) / 2
    return left + box[0] * wide, top + box[1] * high, left + box[2] * wide, top + box[3] * high


class LensBoxes:
    """The box of a word by its internal confidence, if that is ``threshold`` anywhere."""

    def __init__(
        self, anatomy: Anatomy, processor: Any, *, threshold: float = 0.1, template: str | None = None
    ) -> None:
        self.anatomy, self.processor, self.template = anatomy, processor, template
        self.threshold = in_range("threshold", threshold, 0, 1)

    def __call__(self, picture: Image, word: str) -> list[Box]:
        tokens = word_tokens(self.processor, word)
        model = self.anatomy.model
        inputs = build_inputs(model, self.processor, [picture], [DESCRIBE], template=self.template)
        with Tap.of(self.anatomy).aside(), Runner(self.anatomy).apart():
            [read] = confidence(model, inputs, tokens)
        if read is None:
            return []
        places = [patch for patch in read.patches if patch is not None]
        if not places:
            raise UnsupportedError(
                f"the image positions of {type(model).__name__} lie on no grid, so a word has no place in the picture",
                hint="give HALC a detector",
            )
        # of a picture in crops the last view shows all of it, elsewhere the first does
        tile = max(patch.tile for patch in places) if self.anatomy.family.crops else 0
        found = around_peak(read.grid(tokens, tile=tile), self.threshold)
        if found is None:
            return []
        return [of_centre(found, picture.size) if crops_centre(self.processor) else found]
