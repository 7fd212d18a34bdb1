"""Qwen-VL and its kin: one grid of merged patches for each image, one for each pair of video frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.method.grids import Picture, Run, View


def pictures(config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]) -> Iterable[tuple[int, Picture]]:
    """The merged grids, from the grids of patches that the processor reports as (time, height, width)."""
    merge = config.vision_config.spatial_merge_size
    for key, token in (("image_grid_thw", config.image_token_id), ("video_grid_thw", config.video_token_id)):
        grids = inputs.get(key)
        for time, height, width in [] if grids is None else grids.tolist():
            yield token, (View(height // merge, width // merge),) * time
