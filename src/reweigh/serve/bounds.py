"""What can be checked before a model is loaded: bounds, packages and the address."""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from reweigh.errors import InputError, MissingExtraError, require_known
from reweigh.images import MAX_PIXELS
from reweigh.options import require_kind


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a server accepts and how long it works on it; every bound is positive.

    Attributes:
        body_bytes: Bytes of one request, or of one image that is fetched; 32 times as many may be in memory.
        image_pixels: Pixels of all images of one request, as they are and as the processor enlarges them.
        images: Images of one conversation.
        new_tokens: Tokens of one answer.
        queue: Answers that may wait.
        batch: Answers decoded together.
        seconds: Time from arrival to the last token.
    """

    body_bytes: int = 8 << 20
    image_pixels: int = MAX_PIXELS
    images: int = 8
    new_tokens: int = 2048
    queue: int = 256
    batch: int = 16
    seconds: float = 300.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Bounds:
        """Check bounds that a command line or a file gives by name."""
        kinds = {field.name: type(field.default) for field in fields(cls)}
        require_known("limit", given, kinds)
        for name, value in given.items():
            require_kind(f"the limit {name}", value, kinds[name])
        return cls(**given)

    def __post_init__(self) -> None:
        for field in fields(self):
            if not 0 < getattr(self, field.name) < math.inf:
                raise InputError(f"{field.name} is {getattr(self, field.name)}; it must be positive")


def require_extra() -> None:
    """Check that the packages of the extra are installed."""
    for package in ("starlette", "pydantic", "uvicorn", "prometheus_client", "httpx"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError("reweigh serve", "serve", package) from error


def is_loopback(host: str) -> bool:
    """Whether only programs on this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """Listen on an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error})",
            hint="another program may be using it; --port 0 picks a free one",
        ) from error
