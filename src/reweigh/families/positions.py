"""Which positions of a prompt carry image content, and which patch of its image each shows.

A placeholder id alone is not enough: some families put newline features under the same id, several show an
image as tiles, and a Q-Former has no grid at all. Each family with a grid describes its pictures in a file of
its own; this module lays them onto the columns of the sequence. Needs the configuration, not the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from torch import Tensor

from reweigh.errors import InputError
from reweigh.families.catalogue import Family
from reweigh.method.grids import Patch, Picture, Run, View

__all__ = ["Patch", "Picture", "Run", "View", "VisualPosition", "layout", "placeholder_ids"]

PLACEHOLDER_NAMES = (
    "image_token_id",
    "image_token_index",
    "image_patch_id",
    "video_token_id",
    "video_token_index",
)
VisualPosition = tuple[int, Patch | None]
"""A column of the sequence that carries image content, and the patch it shows if the family has a grid."""


def layout(
    family: Family, config: Any, input_ids: Tensor, inputs: Mapping[str, Any]
) -> list[list[VisualPosition]]:
    """The column and patch of each visual position, for each row of ``input_ids`` (B, T).

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
    """Ids of image or video content in ``input_ids``, wherever the configuration keeps them."""
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
