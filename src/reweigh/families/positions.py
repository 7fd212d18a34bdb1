"""Which positions of a prompt carry image content, and where each lies in its image.

A placeholder id alone does not tell: some families put newline features under the same id, several show an
image as tiles, and a Q-Former has no grid at all. Each family with a grid describes its pictures in a file of
its own; here they are laid onto the columns of the sequence. Needs the configuration, not the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from torch import Tensor

from reweigh.errors import InputError
from reweigh.families import gemma3, internvl, llava, llava_next, qwen2_5_vl
from reweigh.method.measure.grids import Patch, Picture, Run, View

__all__ = ["Picture", "Patch", "Run", "View", "layout", "placeholder_ids"]

PLACEHOLDER_NAMES = (
    "image_token_id",
    "image_token_index",
    "image_patch_id",
    "video_token_id",
    "video_token_index",
)
Spot = tuple[int, Patch | None]
Reader = Callable[[Any, Mapping[str, Any], list[list[Run]]], Iterable[tuple[int, Picture]]]
"""Gives each picture of a batch with its placeholder id, in the order in which the sequence holds them."""

READERS: dict[str, Reader] = {
    "llava": llava.pictures,
    "vipllava": llava.pictures,
    "mistral3": llava.pictures,
    "llava_next": llava_next.pictures,
    "llava_next_video": llava_next.pictures,
    "llava_onevision": llava_next.pictures,
    "qwen2_vl": qwen2_5_vl.pictures,
    "qwen2_5_vl": qwen2_5_vl.pictures,
    "qwen3_vl": qwen2_5_vl.pictures,
    "qwen3_vl_moe": qwen2_5_vl.pictures,
    "glm4v": qwen2_5_vl.pictures,
    "internvl": internvl.pictures,
    "gemma3": gemma3.pictures,
    "paligemma": gemma3.pictures,
}

WITH_CONTROLS = frozenset({"llava_next", "llava_next_video", "llava_onevision"})
"""Families with control features under the placeholder id: misread, they would pass for image content."""


def layout(family: str, config: Any, input_ids: Tensor, inputs: Mapping[str, Any]) -> list[list[Spot]]:
    """The column and place of each visual position, for each row of ``input_ids`` (B, T).

    Control features under the placeholder id (newlines) are left out. The place is ``None`` where the family
    has no grid, or where ``inputs`` do not describe the pictures that the placeholders stand for.

    Args:
        family: The configuration's ``model_type``.
        config: The model's configuration.
        input_ids: The prompt with its placeholders expanded by the processor.
        inputs: The processor's other outputs (``image_sizes``, ``image_grid_thw``, ...).
    """
    rows = input_ids.tolist()
    tokens = placeholder_ids(config)
    columns = [[column for column, token in enumerate(row) if token in tokens] for row in rows]
    if not any(columns):
        return [[] for _ in rows]
    reader = READERS.get(family)
    if reader is not None:
        runs = [_runs(row, tokens) for row in rows]
        try:
            return _lay(reader(config, inputs, runs), runs, columns)
        except InputError:
            if family in WITH_CONTROLS:
                raise
    return [[(column, None) for column in row] for row in columns]


def placeholder_ids(config: Any) -> frozenset[int]:
    """Ids that stand for image or video content in ``input_ids``, wherever the configuration keeps them."""
    parts = (config, getattr(config, "vision_config", None))
    found = (getattr(part, name, None) for part in parts for name in PLACEHOLDER_NAMES)
    return frozenset(token for token in found if isinstance(token, int) and not isinstance(token, bool))


def _runs(row: list[int], tokens: frozenset[int]) -> list[Run]:
    return [Run(token, len(list(same))) for token, same in groupby(row) if token in tokens]


def _lay(
    pictures: Iterable[tuple[int, Picture]], runs: list[list[Run]], columns: list[list[int]]
) -> list[list[Spot]]:
    """Deal the pictures out to the rows, in order, and name the columns they take."""
    stock: dict[int, list[Picture]] = {}
    for token, picture in pictures:
        stock.setdefault(token, []).append(picture)
    waiting = {token: iter(known) for token, known in stock.items()}
    nothing: Iterator[Picture] = iter(())
    spots = []
    for row_runs, row_columns in zip(runs, columns, strict=True):
        slots: list[tuple[bool, Patch | None]] = []
        taken, image = 0, 0
        for run in row_runs:
            taken += run.length
            # a picture may cover several runs: video frames with time stamps between them
            while len(slots) < taken:
                try:
                    picture = next(waiting.get(run.token, nothing))
                except StopIteration:
                    raise _misfit(runs, stock) from None
                for tile, view in enumerate(picture):
                    slots += view.slots(image, tile)
                image += 1
        if taken != len(slots):
            raise _misfit(runs, stock)
        pairs = zip(row_columns, slots, strict=True)
        spots.append([(column, place) for column, (shown, place) in pairs if shown])
    if any(list(rest) for rest in waiting.values()):
        raise _misfit(runs, stock)
    return spots


def _misfit(runs: list[list[Run]], stock: Mapping[int, list[Picture]]) -> InputError:
    placeholders = sum(run.length for row in runs for run in row)
    features = sum(view.length for known in stock.values() for picture in known for view in picture)
    return InputError(
        f"the prompt has {placeholders} image placeholders, but the images given make {features} features",
        hint="pass all outputs of the processor (image_sizes too) together with its input_ids",
    )
