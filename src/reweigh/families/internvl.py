"""InternVL: an image is a row of square crops, read left to right and top to bottom, with a thumbnail last.

The processor does not say where the crops lie, so the tile index counts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.families.tower import seen_patches
from reweigh.method.grids import Picture, Run, View


def pictures(config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]) -> Iterable[tuple[int, Picture]]:
    """As many tiles as a run holds: the prompt encloses each image in marks of its own."""
    rows, cols = seen_patches(config.vision_config, inputs)
    tile = View(int(rows * config.downsample_ratio), int(cols * config.downsample_ratio))
    for row in runs:
        for run in row:
            yield run.token, (tile,) * (run.length // tile.length)
