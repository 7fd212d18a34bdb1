"""The image's features as the language model is given them: the first block's input at the visual columns.

They are the projected features to the last bit (LLaVA's, Qwen's, InternVL's, Gemma's), and are kept with the sequence.
"""

from __future__ import annotations

from itertools import takewhile

import torch
from torch import Tensor

from reweigh.engines.transformers.trail import Segment
from reweigh.runtime.decoder import ForwardPass, UpcomingPass


class ImageFeatures:
    """The features of a pass under way, by prompt row: those of earlier passes, and those it shows.

    A decoder makes one in ``before``, hands it the stream at block -1, and lets it keep what is new in ``edit``.

    Args:
        upcoming: The pass that is about to run.
        last_image: Only the last image of a row counts; all of them otherwise.
    """

    def __init__(self, upcoming: UpcomingPass, *, last_image: bool = False) -> None:
        self.upcoming = upcoming
        self.last_image = last_image
        segments = [] if upcoming.trail is None else upcoming.trail.segments
        self.rows: list[Tensor | None] = [
            next((one.value[row] for one in reversed(segments) if one.value[row] is not None), None)
            for row in range(len(upcoming.columns))
        ]

    def of(self, row: int, count: int) -> Tensor | None:
        """The features (N, d) of a forward row out of ``count``."""
        return self.rows[row * len(self.rows) // count]

    def read(self, states: Tensor) -> None:
        """Take in the first block's input (B, T, d)."""
        repeat = states.shape[0] // len(self.rows)
        for row, columns in enumerate(self.upcoming.new_columns()):
            if columns:
                kept = columns[-self._shown_last(row, len(columns)) :] if self.last_image else columns
                new, before = states[row * repeat, kept].float(), self.rows[row]
                self.rows[row] = new if before is None or self.last_image else torch.cat([before, new])

    def _shown_last(self, row: int, count: int) -> int:
        """How many of a row's new columns belong to its last image."""
        trail = self.upcoming.trail
        images = [] if trail is None else [None if one is None else one.image for one in trail.patches[row]]
        return len(list(takewhile(lambda image: image == images[-1], reversed(images[-count:])))) or count

    def keep(self, forward: ForwardPass) -> None:
        """Keep what the pass has shown with its sequence."""
        fresh = forward.new_columns()
        if not any(fresh):
            return
        first = min(row[0] for row in fresh if row)
        last = max(row[-1] for row in fresh if row)
        value = [features if row else None for features, row in zip(self.rows, fresh, strict=True)]
        forward.trail.segments.append(Segment(forward.past + first, forward.past + last, value))
