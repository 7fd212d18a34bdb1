"""Pictures themselves, for decoders that look at parts of them: whose they are, and a prompt with others in their place.

A crop may make another number of image tokens, so a prompt's ids are made again: the processor reads the new picture, and
the image tokens it writes take the place of the old ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from reweigh.engines.transformers.arguments import TOKEN_TYPES, prompt_ids
from reweigh.engines.transformers.session import Session
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import Anatomy
from reweigh.families.prompts import build_inputs
from reweigh.rivals.tools.inputs import forwardable, padded, pixels, token_kinds
from reweigh.runtime.decoder import Decoder, Request
from reweigh.runtime.forward import Pass

if TYPE_CHECKING:
    from PIL.Image import Image

    from reweigh.runtime.answer import Answer

OF_TEXT = frozenset(
    {"input_ids", "attention_mask", "qformer_input_ids", "qformer_attention_mask", *TOKEN_TYPES}
)


class PictureRequest(Request):
    """A request that knows its caller's pictures, one (or none) for each row of the prompt."""

    def __init__(self, decoder: Decoder, pictures: Sequence[Image | None] | None) -> None:
        super().__init__(decoder)
        self.pictures = pictures


class Prepared(dict[str, Any]):
    """Model inputs that remember the pictures they were made of."""

    pictures: Sequence[Image | None] = ()


class PictureSession(Session):
    """A session whose requests carry pictures: ``describe`` and runs give theirs, ``request(pictures=[...])`` takes any."""

    def prepare(
        self, pictures: Sequence[Image | None], prompts: Sequence[str], *, template: str | None = None
    ) -> dict[str, Any]:
        """The model's inputs, with the pictures kept beside them."""
        made = Prepared(super().prepare(pictures, prompts, template=template))
        made.pictures = list(pictures)
        return made

    def respond(self, inputs: Mapping[str, Any], *, seed: int | None = None, **generate: Any) -> list[Answer]:
        """Answer prepared inputs, together with their pictures."""
        known = inputs.pictures if isinstance(inputs, Prepared) else None
        with self.request(pictures=known):
            return super().respond(inputs, seed=seed, **generate)


def picture_request(decoder: Decoder, outer: Request | None, pictures: Any) -> PictureRequest:
    """A request with pictures of its own, or those of the request it is nested in."""
    around = outer.pictures if isinstance(outer, PictureRequest) else None
    return PictureRequest(decoder, around if pictures is None else pictures)


def pictures_of(forward: Pass, anatomy: Anatomy, processor: Any) -> list[Image | None]:
    """The picture of each prompt row: the caller's, or what the processor made of it where that is a whole picture."""
    request, has_image = forward.request, [bool(row.positions) for row in forward.prompts]
    if any(row.images > 1 for row in forward.prompts):
        raise UnsupportedError(
            "a prompt shows several images, and parts of one picture cannot stand for all of them",
            hint="show one image in a prompt, or use another decoder",
        )
    given = request.pictures if isinstance(request, PictureRequest) else None
    if given is not None:
        if len(given) != len(has_image):
            raise InputError(
                f"{len(given)} pictures were given for {len(has_image)} rows",
                hint="one, or None, for each row",
            )
        return list(given)
    values = pixels(forward.inputs)
    if values.ndim != 4 or len(values) != sum(has_image):
        raise UnsupportedError(
            f"the pictures of {type(anatomy.model).__name__} cannot be told from its pixel_values {tuple(values.shape)}",
            hint="give them: with session.request(pictures=[...]), or use session.describe",
        )
    whole = iter([_picture(value, processor) for value in values])
    return [next(whole) if has else None for has in has_image]


def _picture(values: Any, processor: Any) -> Image:
    """A picture from normalised pixels (3, H, W)."""
    import torch
    from PIL import Image

    maker = getattr(processor, "image_processor", None)
    if maker is None:
        raise UnsupportedError(
            f"{type(processor).__name__} has no image processor, so pictures cannot be made from pixels again",
            hint="give the model's whole processor, or the pictures: session.request(pictures=[...])",
        )
    mean, std = (torch.tensor(part)[:, None, None] for part in (maker.image_mean, maker.image_std))
    shades = (values.detach().float().cpu() * std + mean).clamp(0, 1) * 255
    return Image.fromarray(shades.round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy())


def with_pictures(
    anatomy: Anatomy,
    processor: Any,
    inputs: Mapping[str, Any],
    rows: Sequence[tuple[int, Sequence[int]]],
    pictures: Sequence[Image | None],
    *,
    template: str | None = None,
) -> dict[str, Any]:
    """Model inputs of some prompts with other pictures in them.

    Args:
        inputs: The inputs the prompts come from; what belongs to their pictures is made again.
        rows: For each new row the row of ``inputs`` it comes from, and its token ids without padding.
        pictures: Its picture; ``None`` for a row without one.
    """
    shown = [picture for picture in pictures if picture is not None]
    device = prompt_ids(inputs).device
    made = build_inputs(anatomy.model, processor, shown, ["."] * len(shown), template=template)
    spans = iter([_span(row, anatomy.image_tokens) for row in made["input_ids"].tolist()])
    longer = []
    for (_, ids), picture in zip(rows, pictures, strict=True):
        places = [place for place, token in enumerate(ids) if token in anatomy.image_tokens]
        if picture is None:
            longer.append(list(ids))
            continue
        if not places:
            raise InputError(
                "a picture was given for a row whose prompt has no image", hint="give None there"
            )
        longer.append([*ids[: places[0]], *next(spans), *ids[places[-1] + 1 :]])
    kept = forwardable(anatomy, inputs)
    whole = {name: value for name, value in made.items() if name not in OF_TEXT}
    sources = [source for source, _ in rows]
    for name in ("qformer_input_ids", "qformer_attention_mask"):
        if name in kept:
            whole[name] = kept[name][sources]
    whole |= padded(longer, device)
    for name in TOKEN_TYPES:
        if name in kept:
            whole[name] = token_kinds(anatomy, whole["input_ids"])
    return whole


def _span(row: list[int], image: Sequence[int]) -> list[int]:
    """From the first image token of a row to its last."""
    places = [place for place, token in enumerate(row) if token in image]
    return row[places[0] : places[-1] + 1]


def crop(picture: Image, box: Sequence[float]) -> Image:
    """The part of a picture in a box of fractions: edges at the nearest pixel, at least a pixel wide and high."""
    wide, high = picture.size
    left, top = min(round(box[0] * wide), wide - 1), min(round(box[1] * high), high - 1)
    right, bottom = max(left + 1, round(box[2] * wide)), max(top + 1, round(box[3] * high))
    return picture.crop((left, top, right, bottom))
