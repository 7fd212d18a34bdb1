"""Gemma 3 and PaliGemma: each image is one square grid, pooled in Gemma 3.

Gemma's pan-and-scan shows the image and then its crops, each between marks of its own. Which crops belong to
which image is told by ``num_crops``, which the processor computes but keeps to itself; unless the caller adds
it to the inputs, each crop counts as an image.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.families.tower import seen_patches
from reweigh.method.grids import Picture, Run, View


def pictures(config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]) -> Iterable[tuple[int, Picture]]:
    """One view for each image and each of its crops."""
    pooled = getattr(config, "mm_tokens_per_image", None)
    if pooled is None:
        view = View(*seen_patches(config.vision_config, inputs))
    else:
        view = View(math.isqrt(pooled), math.isqrt(pooled))
    crops = inputs.get("num_crops")
    if crops is None:
        total = sum(run.length for row in runs for run in row)
        crops = [0] * (total // view.length)
    for count in crops:
        yield config.image_token_id, (view,) * (1 + int(count))
