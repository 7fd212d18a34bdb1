"""LLaVA-NeXT and LLaVA-OneVision: the whole image, then the same image at high resolution with newlines.

The high-resolution view is put together from crops and freed of padding; after each of its rows stands a
learned newline feature under the image placeholder, which carries no image content. Tile 0 is the whole image
at base resolution, tile 1 the high-resolution view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.method.grids import Picture, Run, View

MAX_GROWTH = 1.1  # beyond this factor over its budget, OneVision shrinks the high-resolution view


def pictures(config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]) -> Iterable[tuple[int, Picture]]:
    """The views of each image, from the original sizes, then of each video."""
    sizes = inputs.get("image_sizes")
    if sizes is not None:
        alone = _alone(len(sizes), inputs.get("batch_num_images"))
        for (height, width), single in zip(sizes, alone, strict=True):
            size = int(height), int(width)
            yield config.image_token_id, anyres(config, size) if single else (_base(config, end=1),)
    videos = inputs.get("pixel_values_videos")
    if videos is not None:
        for video in videos:
            yield config.video_token_id, _frames(config, len(video))


def anyres(config: Any, size: tuple[int, int]) -> Picture:
    """Base view and high-resolution view of an image of (height, width) pixels."""
    from transformers.image_processing_utils import select_best_resolution

    side = config.vision_config.image_size
    base = _base(config)
    best_height, best_width = select_best_resolution(size, config.image_grid_pinpoints)
    rows, cols = _unpadded(size, best_height // side * base.rows, best_width // side * base.cols)
    rows, cols = _shrunk(config, rows, cols, base.rows)
    return base, View(rows, cols, row_end=1)


def _base(config: Any, end: int = 0) -> View:
    side = config.vision_config.image_size // config.vision_config.patch_size
    return View(side, side, end=end)


def _unpadded(size: tuple[int, int], rows: int, cols: int) -> tuple[int, int]:
    """Grid without the two bands, of equally many whole patches, that pad the image to the canvas."""
    height, width = size
    if width / height > cols / rows:
        rows -= (rows - int(round(height * (cols / width), 7))) // 2 * 2
    else:
        cols -= (cols - int(round(width * (rows / height), 7))) // 2 * 2
    return rows, cols


def _shrunk(config: Any, rows: int, cols: int, side: int) -> tuple[int, int]:
    """OneVision interpolates views beyond its budget ("anyres_max_9": nine base views) down to it."""
    budget = str(getattr(config, "vision_aspect_ratio", "")).removeprefix("anyres_max_")
    if budget.isdigit():
        growth = math.sqrt(rows * cols / (int(budget) * side**2))
        if growth > MAX_GROWTH:
            return int(rows // growth), int(cols // growth)
    return rows, cols


def _alone(images: int, counts: Any) -> list[bool]:
    """Whether each image is alone in its row: OneVision shows several images at base resolution only."""
    if counts is None:
        return [True] * images
    return [int(count) == 1 for count in counts for _ in range(int(count))]


def _frames(config: Any, count: int) -> Picture:
    """Frames of a video, pooled to half resolution; OneVision ends them with one newline."""
    side = config.vision_config.image_size // config.vision_config.patch_size
    if config.model_type == "llava_onevision":
        half = math.ceil(side / 2)
        return (*[View(half, half)] * (count - 1), View(half, half, end=1))
    half = side // config.spatial_pool_stride
    return (View(half, half),) * count
