"""What one server accepts, and for how long it works on it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from reweigh.errors import InputError
from reweigh.images import MAX_PIXELS


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Upper bounds; each is positive.

    Attributes:
        body_bytes: Bytes of one request.
        body_seconds: Time in which its body must arrive.
        image_bytes: Bytes of one encoded image.
        image_pixels: Pixels of one image.
        images: Images of one conversation.
        prompt_tokens: Tokens of one prompt; the model's context bounds it too.
        new_tokens: Tokens of one answer.
        choices: Answers to one request (``n``).
        queue_rows: Answers that may wait.
        batch_rows: Answers decoded together.
        seconds: Time from arrival to the last token.
    """

    body_bytes: int = 32 << 20
    body_seconds: float = 30.0
    image_bytes: int = 20 << 20
    image_pixels: int = MAX_PIXELS
    images: int = 8
    prompt_tokens: int = 32768
    new_tokens: int = 2048
    choices: int = 16
    queue_rows: int = 256
    batch_rows: int = 16
    seconds: float = 300.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise InputError(f"{field.name} is {getattr(self, field.name)}; it must be positive")
