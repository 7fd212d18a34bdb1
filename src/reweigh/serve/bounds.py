"""What one server accepts, and for how long it works on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from reweigh.errors import InputError, require_known
from reweigh.images import MAX_PIXELS


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Upper bounds; each is positive.

    Attributes:
        connections: Open connections; beyond them, the one that has waited longest without a request is closed.
        head_seconds: Time in which a connection must send the head of a request.
        body_bytes: Bytes of one request; eight times as many may be in memory at once.
        body_seconds: Time in which its body must arrive, and in which a client must read what it was sent.
        image_bytes: Bytes of one encoded image.
        image_pixels: Pixels of one image.
        images: Images of one conversation.
        prompt_tokens: Tokens of one prompt; the model's context bounds it too.
        new_tokens: Tokens of one answer.
        choices: Answers to one request (``n``).
        queue: Answers that may wait.
        batch: Answers decoded together.
        seconds: Time from arrival to the last token.
    """

    connections: int = 512
    head_seconds: float = 10.0
    body_bytes: int = 32 << 20
    body_seconds: float = 30.0
    image_bytes: int = 20 << 20
    image_pixels: int = MAX_PIXELS
    images: int = 8
    prompt_tokens: int = 32768
    new_tokens: int = 2048
    choices: int = 16
    queue: int = 256
    batch: int = 16
    seconds: float = 300.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Bounds:
        """Bounds by name, as a command line or a file has them."""
        kinds = {field.name: type(field.default) for field in fields(cls)}
        require_known("limit", given, kinds)
        for name, value in given.items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole and not (kinds[name] is float and isinstance(value, float)):
                wanted = "a number" if kinds[name] is float else "a whole number"
                raise InputError(f"the limit {name} is {value!r}; it must be {wanted}")
        return cls(**given)

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise InputError(f"{field.name} is {getattr(self, field.name)}; it must be positive")
