"""From a conversation to the model's inputs for one row, and from rows to the inputs of a batch.

Pictures come from data URLs, or are fetched if the server's owner allows it; both are bounded. Each row is prepared
alone, before it is queued, so its length is known and errors are reported at once. A batch is padded on the left, as the
processor itself would.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reweigh.errors import ImageError, InputError, ReweighError
from reweigh.families.positions import placeholder_ids
from reweigh.families.processor import chat_template_of, resized_pixels, tokenizer_of
from reweigh.families.prompts import encode, render, render_chat
from reweigh.images import open_image, read_image
from reweigh.serve.bounds import Bounds
from reweigh.serve.fetch import Fetcher
from reweigh.serve.problem import Deadline, invalid
from reweigh.serve.recall import OF_THE_PROMPT
from reweigh.serve.wire import ImagePart, ImageUrl, Message, Part
from reweigh.text import Template

if TYPE_CHECKING:
    from PIL.Image import Image

LANES = ("small", "large")
"""Threads that prepare requests: those with large pictures wait for each other, and nobody else waits for them."""
LARGE = 4_000_000
"""Pixels of one request's pictures beyond which they are large."""
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


async def find_pictures(
    messages: Sequence[Message], bounds: Bounds, fetcher: Fetcher | None, hold: Callable[[int], None]
) -> dict[str, str | bytes]:
    """Find the images of a conversation by their place in it: data URLs as they are, the bytes of all others."""
    urls = _image_urls(messages)
    if len(urls) > bounds.images:
        told = f"{len(urls)} images were given; this server allows at most {bounds.images}"
        raise invalid("messages", told, code="too_many_images")
    found: dict[str, str | bytes] = {}
    for param, url in ((param, asked.url) for param, asked in urls.items()):
        if url[:5].lower() == "data:":
            found[param] = url
        elif fetcher is not None:
            found[param] = await fetcher.fetch(url, param, hold)
        else:
            told = "this server does not fetch images; send them as data URLs"
            raise invalid(param, told, code="url_not_allowed")
    return found


@dataclass(frozen=True, slots=True)
class Opened:
    """An image whose size is known and whose pixels are not decoded yet."""

    param: str
    image: Image
    pixels: int


def _image_urls(messages: Sequence[Message]) -> dict[str, ImageUrl]:
    """Return the images of a conversation by their place in it."""
    return {
        f"messages.{turn}.content.{index}.image_url": part.image_url
        for turn, message in enumerate(messages)
        for index, part in enumerate(message.content)
        if isinstance(part, ImagePart)
    }


def open_pictures(
    messages: Sequence[Message], found: Mapping[str, str | bytes], bounds: Bounds, processor: Any
) -> list[Opened]:
    """Open images and bound their pixels together: as they are, as requested, and as the processor enlarges them."""
    opened: list[Opened] = []
    for param, asked in _image_urls(messages).items():
        least = asked.min_pixels or 0
        if least > bounds.image_pixels:
            told = f"min_pixels is {least:,}; this server allows at most {bounds.image_pixels:,}"
            raise invalid(f"{param}.min_pixels", told)
        given = found[param]
        data = _decoded(given, param) if isinstance(given, str) else given
        with _refusing(param):
            image = open_image(data, max_pixels=bounds.image_pixels)
        pixels = max(image.width * image.height, resized_pixels(processor, image.size), least)
        opened.append(Opened(param, image, pixels))
    total = sum(one.pixels for one in opened)
    if total > bounds.image_pixels:
        told = (
            f"the images have {total / 1e6:.1f} megapixels together, as they are or enlarged for the model; "
            f"this server allows at most {bounds.image_pixels / 1e6:g}"
        )
        raise invalid("messages", told, code="image_too_large", status=422)
    return opened


def read_pictures(opened: Sequence[Opened], deadline: Deadline) -> list[Image]:
    """Decode images; a small file may be a large picture, so few should be decoded at a time."""
    pictures = []
    for one in opened:
        deadline.check()
        with _refusing(one.param), one.image:
            pictures.append(read_image(one.image, max_pixels=one.pixels))
    return pictures


def resized(pictures: Sequence[Image], messages: Sequence[Message]) -> list[Image]:
    """Bring each picture of a conversation to the area that its part asks for, in its own proportions."""
    made = []
    for picture, asked in zip(pictures, _image_urls(messages).values(), strict=True):
        area = picture.width * picture.height
        wanted = min(max(area, asked.min_pixels or 0), asked.max_pixels or math.inf)
        scale = math.sqrt(wanted / area)
        size = max(1, round(picture.width * scale)), max(1, round(picture.height * scale))
        made.append(picture if size == picture.size else picture.resize(size))
    return made


@contextmanager
def _refusing(param: str) -> Iterator[None]:
    """Turn what is wrong with an image into a problem with its place in the request."""
    try:
        yield
    except ImageError as error:
        raise invalid(param, error.message, code="invalid_image", status=422) from None


def _decoded(url: str, param: str) -> bytes:
    head, comma, payload = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        told = "an image's data URL must look like data:image/png;base64,..."
        raise invalid(param, told, code="invalid_image_url")
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError:
        raise invalid(param, "an image's data URL is not valid base64", code="invalid_image_url") from None


@dataclass(frozen=True, slots=True)
class Prepared:
    """One row, ready for the model.

    Attributes:
        inputs: What its processor returned, one row.
        key: The key of its evidence in the cache; ``None`` without an image.
        prompt_tokens: Tokens of the prompt, those of images included.
    """

    inputs: Mapping[str, Any]
    key: str | None
    prompt_tokens: int

    @property
    def shapes(self) -> Shapes | None:
        """What rows must share to be stacked: empty without images, ``None`` if the row cannot be stacked."""
        beside = {name: value for name, value in self.inputs.items() if name not in OF_THE_PROMPT}
        if not all(isinstance(value, Tensor) for value in beside.values()):
            return None
        sizes = {
            name: value.shape[2:] if value.ndim == 5 else value.shape[1:] for name, value in beside.items()
        }
        return tuple(sorted((name, tuple(size)) for name, size in sizes.items()))


def prepare_inputs(
    model: Any,
    processor: Any,
    messages: Sequence[Message],
    pictures: Sequence[Image],
    *,
    template: Template | None = None,
) -> dict[str, Any]:
    """Build the inputs of one conversation; an error of the processor becomes an ``InputError``."""
    tokenizer = tokenizer_of(processor)
    marks = [str(tokenizer.convert_ids_to_tokens(token)) for token in placeholder_ids(model.config)]
    for text in (text for message in messages for text in message.texts):
        if any(mark in text for mark in marks):  # it would be a placeholder without a picture
            raise InputError(
                "a text contains the model's image token", hint="send images as parts of type image_url"
            )
    try:
        text = _text(model, processor, messages, len(pictures), template)
        return encode(model, processor, [text], [list(pictures)])
    except ReweighError:
        raise
    except Exception as error:  # templates and processors raise all kinds of exceptions on odd input
        raise InputError(
            f"the model's processor refuses this conversation ({type(error).__name__})",
            hint="turns alternate between user and assistant",
        ) from error


def _text(
    model: Any, processor: Any, messages: Sequence[Message], pictures: int, template: Template | None
) -> str:
    if not isinstance(template, str) and chat_template_of(processor):
        return render_chat(processor, [_turn(message) for message in messages], template)
    if len(messages) != 1 or messages[0].role != "user" or pictures > 1:
        raise InputError(
            "this model has no chat template, so it takes one user message with at most one image",
            hint="leave out system messages, earlier turns and further images",
        )
    return render(model, processor, "\n".join(messages[0].texts), pictures > 0, template)


def _turn(message: Message) -> dict[str, Any]:
    role = "system" if message.role == "developer" else message.role
    parts = [
        {"type": "image"} if isinstance(part, ImagePart) else {"type": "text", "text": part.text}
        for part in _images_first(message.content)
    ]
    return {"role": role, "content": parts}


def _images_first(parts: Sequence[Part]) -> list[Part]:
    """Put a turn's images before its text, as models are trained; images that texts stand between keep their places.

    Many clients send the text first. Some templates write the images first themselves, others follow the message.
    """
    shown = [isinstance(part, ImagePart) for part in parts]
    if True in shown and all(shown[shown.index(True) : len(shown) - shown[::-1].index(True)]):
        return sorted(parts, key=lambda part: not isinstance(part, ImagePart))
    return list(parts)


def stackable(one: Shapes | None, other: Shapes | None) -> bool:
    """Whether two rows can be decoded in one batch."""
    return one is not None and other is not None and (not one or not other or one == other)


def stack(rows: Sequence[Prepared], pad: int) -> dict[str, Any]:
    """Build the inputs of a batch, padded on the left."""
    if len(rows) == 1:
        return dict(rows[0].inputs)
    names = list(dict.fromkeys(name for row in rows for name in row.inputs))
    width = max(row.inputs["input_ids"].shape[1] for row in rows)
    return {
        name: torch.cat([_padded(row.inputs, name, width, pad if name == "input_ids" else 0) for row in rows])
        if name in OF_THE_PROMPT
        else _joined([row.inputs[name] for row in rows if name in row.inputs])
        for name in names
    }


def _padded(inputs: Mapping[str, Any], name: str, width: int, fill: int) -> Tensor:
    own: Tensor = inputs[name] if name in inputs else torch.zeros_like(inputs["input_ids"])
    return torch.nn.functional.pad(own, (width - own.shape[1], 0), value=fill)


def _joined(values: list[Tensor]) -> Tensor:
    """Concatenate pictures; pad those of several tiles (n, tiles, ...) with zeros to the most tiles."""
    if values[0].ndim == 5:
        tiles = max(value.shape[1] for value in values)
        values = [
            torch.nn.functional.pad(value, (0, 0, 0, 0, 0, 0, 0, tiles - value.shape[1])) for value in values
        ]
    return torch.cat(values)
