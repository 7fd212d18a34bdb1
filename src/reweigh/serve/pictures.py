"""The pictures of a conversation: decoded from data URLs, or fetched if allowed; bounded either way."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reweigh.errors import ImageError
from reweigh.images import read_image
from reweigh.serve.bounds import Bounds
from reweigh.serve.deadline import Deadline
from reweigh.serve.fetch import Fetcher
from reweigh.serve.problem import Problem
from reweigh.serve.wire import ImagePart, Message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from PIL.Image import Image


@dataclass(frozen=True, slots=True)
class Encoded:
    """An image of a conversation as its client sent it; ``param`` names it in an error."""

    param: str
    data: bytes


def find_pictures(messages: Sequence[Message], bounds: Bounds, fetcher: Fetcher | None) -> list[Encoded]:
    """The images of a conversation in its order, still encoded; some may have to be fetched."""
    found = [
        (f"messages.{turn}.content.{index}.image_url", part.image_url.url)
        for turn, message in enumerate(messages)
        for index, part in enumerate(message.parts())
        if isinstance(part, ImagePart)
    ]
    if len(found) > bounds.images:
        raise Problem(
            400,
            f"{len(found)} images were given; this server takes {bounds.images}",
            param="messages",
            code="too_many_images",
        )
    return [Encoded(param, _bytes_of(url, param, bounds, fetcher)) for param, url in found]


def read_pictures(found: Sequence[Encoded], bounds: Bounds, deadline: Deadline) -> list[Image]:
    """Decode images; a small file may be a large picture, so few should be decoded at a time."""
    pictures = []
    for one in found:
        deadline.check()
        try:
            pictures.append(read_image(one.data, max_pixels=bounds.image_pixels))
        except ImageError as error:
            raise Problem(422, error.message, param=one.param, code="invalid_image") from None
    return pictures


def _bytes_of(url: str, param: str, bounds: Bounds, fetcher: Fetcher | None) -> bytes:
    if url[:5].lower() == "data:":
        data = _decode(url, param, bounds)
    elif fetcher is None:
        raise Problem(
            400,
            "this server does not fetch images; send them as data URLs",
            param=param,
            code="url_not_allowed",
        )
    else:
        data = fetcher.fetch(url, param)
    if len(data) > bounds.image_bytes:
        raise _too_long(len(data), bounds, param)
    return data


def _decode(url: str, param: str, bounds: Bounds) -> bytes:
    head, comma, payload = url.partition(",")
    if not comma or not head.lower().endswith(";base64"):
        raise Problem(
            400,
            "an image's data URL must look like data:image/png;base64,...",
            param=param,
            code="invalid_image_url",
        )
    if len(payload) * 3 // 4 - 2 > bounds.image_bytes:
        raise _too_long(len(payload) * 3 // 4, bounds, param)
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise Problem(
            400, "an image's data URL is not valid base64", param=param, code="invalid_image_url"
        ) from None


def _too_long(size: int, bounds: Bounds, param: str) -> Problem:
    return Problem(
        413,
        f"an image has {size:,} bytes; this server takes {bounds.image_bytes:,}",
        param=param,
        code="image_too_large",
    )
