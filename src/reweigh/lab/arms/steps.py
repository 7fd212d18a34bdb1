"""One decoding step, ready to be shown: its candidates as whole words, and the evidence of words painted on the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reweigh.engines.transformers.observe import whole_words
from reweigh.errors import InputError
from reweigh.lab.views.mechanism import heatmap, visible
from reweigh.measuring import measure
from reweigh.method.trace import Step, Trace

if TYPE_CHECKING:
    from PIL.Image import Image


def whole_candidates(
    session: Any, trace: Trace, step: Step, inputs: Mapping[str, Any], top: int | None = None
) -> dict[int, str]:
    """Spell out the top candidates: the written one as the text has it, the others as the model would continue them."""
    said = [trace.step(index).winner_after for index in range(step.index)]
    words = {row.token: visible(row.text) for row in step.candidates[:top]}
    words |= whole_words(session.model, session.processor, inputs, said, list(words))
    return {**words, step.winner_after: trace.word(step.index)}


def evidence_maps(
    model: Any, inputs: Mapping[str, Any], layer: int, tokens: Sequence[int], picture: Image
) -> tuple[list[bytes], float]:
    """Paint the evidence of tokens on a picture, all from 0 to one value; return the PNGs and that value.

    There are none for a prompt without an image, and for a family whose positions have no grid.
    """
    [found] = measure(model, inputs, [layer], locate=list(tokens))
    if found is None:
        return [], 0.0
    try:
        grids = [found.grid(layer, index).numpy() for index in range(len(tokens))]
    except InputError:
        return [], 0.0
    high = max(float(np.nanmax(grid)) for grid in grids)
    return [heatmap(picture, grid, low=0.0, high=high) for grid in grids], high
