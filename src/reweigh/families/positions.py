"""Which positions of a prompt carry image content, and which patch of its image each shows.

A placeholder id alone is not enough: some families put newline features under the same id, several show an
image as tiles, and a Q-Former has no grid at all. For each family with a grid, a reader below describes the pictures of a
batch, each with its placeholder id, in sequence order; ``layout`` maps them onto the columns. Needs the configuration and
the processor's outputs, not the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

from torch import Tensor

from reweigh.errors import InputError
from reweigh.method.grids import Patch, Picture, Run, View, VisualPosition

if TYPE_CHECKING:
    from reweigh.families.catalogue import Family

PLACEHOLDER_NAMES = (
    "image_token_id",
    "image_token_index",
    "image_patch_id",
    "video_token_id",
    "video_token_index",
)


def layout(
    family: Family, config: Any, input_ids: Tensor, inputs: Mapping[str, Any]
) -> list[list[VisualPosition]]:
    """Return the column and patch of each visual position, for each row of ``input_ids`` (B, T).

    Control features under the placeholder id (newlines) are left out. The patch is ``None`` where the family
    has no grid, or where ``inputs`` do not describe the pictures that the placeholders stand for.

    Args:
        family: The model's family, as ``families.catalogue.family_of(config)`` gives it.
        config: The model's configuration.
        input_ids: The prompt with its placeholders expanded by the processor.
        inputs: The processor's other outputs (``image_sizes``, ``image_grid_thw``, ...).
    """
    rows = input_ids.tolist()
    tokens = placeholder_ids(config)
    columns = [[column for column, token in enumerate(row) if token in tokens] for row in rows]
    if not any(columns):
        return [[] for _ in rows]
    if family.pictures is not None:
        runs = [_runs(row, tokens) for row in rows]
        try:
            return _assign(family.pictures(config, inputs, runs), runs, columns)
        except InputError:
            if family.has_controls:
                raise
    return [[(column, None) for column in row] for row in columns]


def placeholder_ids(config: Any) -> frozenset[int]:
    """Return the ids of image or video content in ``input_ids``, wherever the configuration keeps them."""
    parts = (config, getattr(config, "vision_config", None))
    found = (getattr(part, name, None) for part in parts for name in PLACEHOLDER_NAMES)
    return frozenset(token for token in found if isinstance(token, int) and not isinstance(token, bool))


def _runs(row: list[int], tokens: frozenset[int]) -> list[Run]:
    return [Run(token, len(list(same))) for token, same in groupby(row) if token in tokens]


def _assign(
    pictures: Iterable[tuple[int, Picture]], runs: list[list[Run]], columns: list[list[int]]
) -> list[list[VisualPosition]]:
    """Assign the pictures to the rows, in order, and pair their features with columns."""
    known: dict[int, list[Picture]] = {}
    for token, picture in pictures:
        known.setdefault(token, []).append(picture)
    waiting = {token: iter(found) for token, found in known.items()}
    nothing: Iterator[Picture] = iter(())
    positions = []
    for row_runs, row_columns in zip(runs, columns, strict=True):
        features: list[tuple[bool, Patch | None]] = []
        taken, image = 0, 0
        for run in row_runs:
            taken += run.length
            # a picture may cover several runs: video frames with time stamps between them
            while len(features) < taken:
                try:
                    picture = next(waiting.get(run.token, nothing))
                except StopIteration:
                    raise _count_error(runs, known) from None
                for tile, view in enumerate(picture):
                    features += view.features(image, tile)
                image += 1
        if taken != len(features):
            raise _count_error(runs, known)
        pairs = zip(row_columns, features, strict=True)
        positions.append([(column, patch) for column, (visual, patch) in pairs if visual])
    if any(list(rest) for rest in waiting.values()):
        raise _count_error(runs, known)
    return positions


def _count_error(runs: list[list[Run]], known: Mapping[int, list[Picture]]) -> InputError:
    placeholders = sum(run.length for row in runs for run in row)
    features = sum(view.length for found in known.values() for picture in found for view in picture)
    return InputError(
        f"the prompt has {placeholders} image placeholders, but the images yield {features} features",
        hint="pass all outputs of the processor (image_sizes too) together with its input_ids",
    )


MAX_GROWTH = 1.1
"""Beyond this factor over its budget, OneVision shrinks the high-resolution view."""


def llava_pictures(
    config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]
) -> Iterable[tuple[int, Picture]]:
    """Describe LLaVA-1.5 and similar: one view of each image, of one size; with a Pixtral tower, of its own shape."""
    vision, token = config.vision_config, config.image_token_id
    if vision.model_type == "pixtral":
        # the row breaks of Pixtral prompts are tokens of their own, so the grid has no control features
        side = vision.patch_size * getattr(config, "spatial_merge_size", 1)
        sizes = inputs.get("image_sizes")
        return [(token, (View(int(h) // side, int(w) // side),)) for h, w in ([] if sizes is None else sizes)]
    rows, cols = seen_patches(vision, inputs)
    # a CLIP tower puts a class token first; every strategy but "default" keeps it
    strategy = getattr(config, "vision_feature_select_strategy", "default")
    kept = vision.model_type == "clip_vision_model" and strategy != "default"
    view = View(rows, cols, lead=int(kept))
    total = sum(run.length for row in runs for run in row)
    return [(token, (view,))] * (total // view.length)


def qwen2_5_vl_pictures(
    config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]
) -> Iterable[tuple[int, Picture]]:
    """Describe Qwen-VL and similar: one grid of merged patches for each image and each pair of video frames."""
    merge = config.vision_config.spatial_merge_size
    for key, token in (("image_grid_thw", config.image_token_id), ("video_grid_thw", config.video_token_id)):
        grids = inputs.get(key)
        for time, height, width in [] if grids is None else grids.tolist():
            yield token, (View(height // merge, width // merge),) * time


def internvl_pictures(
    config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]
) -> Iterable[tuple[int, Picture]]:
    """Describe InternVL: an image is a row of square crops, left to right and top to bottom, and a thumbnail.

    There are as many tiles as a run of placeholders holds, because the prompt encloses each image in marks of its own.
    The processor does not say where the crops lie, so the tile index counts them.
    """
    rows, cols = seen_patches(config.vision_config, inputs)
    tile = View(int(rows * config.downsample_ratio), int(cols * config.downsample_ratio))
    for row in runs:
        for run in row:
            yield run.token, (tile,) * (run.length // tile.length)


def gemma3_pictures(
    config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]
) -> Iterable[tuple[int, Picture]]:
    """Describe Gemma 3 and PaliGemma: each image is one square grid, pooled in Gemma 3.

    Gemma's pan-and-scan shows the image and then its crops, each between marks of its own. Which crops belong to which
    image is in ``num_crops``, which the processor computes but does not return; unless the caller adds it to the
    inputs, each crop counts as an image.
    """
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


def llava_next_pictures(
    config: Any, inputs: Mapping[str, Any], runs: list[list[Run]]
) -> Iterable[tuple[int, Picture]]:
    """Describe LLaVA-NeXT and its kin: the whole image (tile 0), the same at high resolution (tile 1), then videos.

    The high-resolution view is put together from crops and freed of padding; after each of its rows comes a learned
    newline feature under the image placeholder, which carries no image content.
    """
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
    """Return the base view and the high-resolution view of an image of (height, width) pixels."""
    from transformers.image_processing_utils import select_best_resolution

    side = config.vision_config.image_size
    base = _base(config)
    best_height, best_width = select_best_resolution(size, config.image_grid_pinpoints)
    rows, cols = _unpadded(size, best_height // side * base.rows, best_width // side * base.cols)
    rows, cols = _shrunk(config, rows, cols, base.rows)
    return base, View(rows, cols, row_end=1)


def _base(config: Any, end: int = 0) -> View:
    side = config.vision_config.image_size // config.vision_config.patch_size
    side = int(side * Fraction(getattr(config, "downsample_rate", None) or 1))  # Granite 4's "4/8"
    return View(side, side, end=end)


def _unpadded(size: tuple[int, int], rows: int, cols: int) -> tuple[int, int]:
    """Remove the two bands, of equally many whole patches, that pad the image to the canvas."""
    height, width = size
    if width / height > cols / rows:
        rows -= (rows - int(round(height * (cols / width), 7))) // 2 * 2
    else:
        cols -= (cols - int(round(width * (rows / height), 7))) // 2 * 2
    return rows, cols


def _shrunk(config: Any, rows: int, cols: int, side: int) -> tuple[int, int]:
    """Shrink a view to OneVision's budget ("anyres_max_9": nine base views), as it interpolates larger ones."""
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
    """Return the frames of a video, pooled to half resolution; OneVision ends them with one newline."""
    side = config.vision_config.image_size // config.vision_config.patch_size
    if config.model_type == "llava_onevision":
        half = math.ceil(side / 2)
        return (*[View(half, half)] * (count - 1), View(half, half, end=1))
    half = side // config.spatial_pool_stride
    return (View(half, half),) * count


def seen_size(vision: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """Return height and width of the pictures in pixels: those of the inputs, or the tower's own by default.

    They differ if a tower interpolates its position embeddings to the size that the processor resizes to.
    """
    pixels = inputs.get("pixel_values")
    if pixels is not None and getattr(pixels, "ndim", 0) == 4:
        return int(pixels.shape[-2]), int(pixels.shape[-1])
    return _pair(vision.image_size)


def seen_patches(vision: Any, inputs: Mapping[str, Any]) -> tuple[int, int]:
    """Return rows and columns of the grid of patches."""
    (height, width), (patch_height, patch_width) = seen_size(vision, inputs), _pair(vision.patch_size)
    return height // patch_height, width // patch_width


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)
