"""A model family: everything in which it differs from the generic rule, in one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from reweigh.method.grids import Picture, Run

PictureReader = Callable[[Any, Mapping[str, Any], list[list[Run]]], Iterable[tuple[int, Picture]]]
"""From (config, processor outputs, placeholder runs of each row) to each picture of the batch with its placeholder id,
in the order in which the sequence holds them."""


@dataclass(frozen=True, slots=True)
class Family:
    """One model family; a record with only a name follows the generic rule.

    Attributes:
        name: The configuration's ``model_type``.
        pictures: Describes the grids of a batch's pictures; without it, positions have no patch.
        has_controls: Control features (newlines) share the placeholder id, so unread pictures are an error: the
            controls would pass for image content.
        causal: Text after an image is known not to change the states of its positions.
        delegates: ``generate`` delegates to the inner ``language_model``.
        nested_images: The processor expects a list of images for each row.
        bare_prompt: There is no chat template; the processor puts the image tokens before the text itself.
        crops: All views of an image but the last are crops at unknown places.
        refused: Why the family is not supported, if it is not.
    """

    name: str
    _: KW_ONLY
    pictures: PictureReader | None = None
    has_controls: bool = False
    causal: bool = False
    delegates: bool = False
    nested_images: bool = False
    bare_prompt: bool = False
    crops: bool = False
    refused: str | None = None
