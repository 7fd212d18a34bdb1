"""The caller's pictures, which HALC crops, and prompts with other pictures in their place.

A crop may have another number of image tokens, so the prompt's ids are rebuilt: the processor reads the new picture, and
its image tokens replace the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reweigh.engines.session import Session
from reweigh.rivals.tools import (
    TOKEN_TYPES,
    Anatomy,
    InputError,
    Pass,
    UnsupportedError,
    build_inputs,
    forwardable,
    span,
    with_ids,
)
from reweigh.text import Template

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.engines.answer import Answer

OF_TEXT = frozenset(
    {"input_ids", "attention_mask", "qformer_input_ids", "qformer_attention_mask", *TOKEN_TYPES}
)


class Prepared(dict[str, Any]):
    """Model inputs that remember the pictures they were made of."""

    pictures: Sequence[Image | None] = ()


class PictureSession(Session):
    """A session whose runs carry pictures: those that ``describe`` was given, or of ``using(pictures=[...])``."""

    def prepare(
        self, pictures: Sequence[Image | None], prompts: Sequence[str], *, template: Template | None = None
    ) -> dict[str, Any]:
        """The model's inputs, with the pictures kept beside them."""
        made = Prepared(super().prepare(pictures, prompts, template=template))
        made.pictures = list(pictures)
        return made

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs, together with their pictures."""
        known = inputs.pictures if isinstance(inputs, Prepared) else None
        with self.running() as run:
            before, run.options = (
                run.options,
                {**run.options, **({} if known is None else {"pictures": known})},
            )
            try:
                return super().respond(inputs, seed=seed, **generate)
            finally:
                run.options = before


def pictures_of(forward: Pass) -> list[Image | None]:
    """Return the caller's picture for each row of a prompt."""
    has_image = [bool(row.positions) for row in forward.prompt.rows]
    if any(row.images > 1 for row in forward.prompt.rows):
        raise UnsupportedError(
            "a prompt shows several images, and parts of one picture cannot stand for all of them",
            hint="show one image in a prompt, or use another decoder",
        )
    given: Sequence[Image | None] | None = forward.prompt.run.options.get("pictures")
    if given is None:
        if any(has_image):
            raise InputError(
                "HALC crops the pictures themselves, but got only pixel_values",
                hint="with session.using(pictures=[...]), one for each row, or use session.describe",
            )
        return [None] * len(has_image)
    if len(given) != len(has_image):
        raise InputError(
            f"{len(given)} pictures were given for {len(has_image)} rows", hint="one, or None, for each row"
        )
    if any(picture is not None and not has for picture, has in zip(given, has_image, strict=True)):
        raise InputError("a picture was given for a row whose prompt has no image", hint="pass None there")
    return list(given)


def with_pictures(
    anatomy: Anatomy,
    processor: Any,
    inputs: Mapping[str, Any],
    row: int,
    ids: Sequence[int],
    pictures: Sequence[Image],
    *,
    template: Template | None = None,
) -> dict[str, Any]:
    """Return the model inputs of one prompt, once for each picture in place of its own.

    Args:
        inputs: The inputs that the prompt comes from.
        row: The prompt's row in them.
        ids: Its token ids without padding, and any that follow it.
    """
    made = build_inputs(anatomy.model, processor, list(pictures), ["."] * len(pictures), template=template)
    first, last = span(ids, anatomy.image_tokens)
    longer = []
    for other in made["input_ids"].tolist():
        start, end = span(other, anatomy.image_tokens)
        longer.append([*ids[:first], *other[start:end], *ids[last:]])
    kept = forwardable(anatomy, inputs)
    whole = {name: kept[name] for name in ("input_ids", *TOKEN_TYPES) if name in kept}
    whole |= {name: value for name, value in made.items() if name not in OF_TEXT}
    for name in ("qformer_input_ids", "qformer_attention_mask"):
        if name in kept:
            whole[name] = kept[name][[row] * len(pictures)]
    return with_ids(anatomy, whole, longer)


def crop(picture: Image, box: Sequence[float]) -> Image:
    """Crop a picture to a box of fractions: edges at the nearest pixel, at least one pixel wide and high."""
    wide, high = picture.size
    left, top = min(round(box[0] * wide), wide - 1), min(round(box[1] * high), high - 1)
    right, bottom = max(left + 1, round(box[2] * wide)), max(top + 1, round(box[3] * high))
    return picture.crop((left, top, right, bottom))
