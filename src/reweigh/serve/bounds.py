"""What can be checked before a model is loaded: bounds, table names, packages and the address."""

from __future__ import annotations

import ipaddress
import math
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from reweigh.errors import InputError, MissingExtraError, require_known
from reweigh.images import MAX_PIXELS
from reweigh.options import require_kind

DEFAULT = "default"
"""Name of the table for requests that name none."""
TABLE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """What a server accepts and how long it works on it; every bound is positive.

    Attributes:
        connections: Open connections; beyond them, the one that has waited longest without a request is closed.
        head_seconds: Time in which a connection must send the head of a request.
        body_bytes: Bytes of one request; eight times as many may be in memory at once.
        body_seconds: Time in which its body must arrive, and in which a client must read what it was sent.
        image_bytes: Bytes of one encoded image.
        image_pixels: Pixels of all images of one request, as they are and as the processor enlarges them.
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


def name_tables(given: Iterable[str]) -> dict[str, str]:
    """Sort tables by name: ``TABLE`` alone is the default, ``NAME=TABLE`` one that requests choose."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals or not TABLE_NAME.fullmatch(name):  # a path may contain "="
            name, source = DEFAULT, text
        if name in found:
            raise InputError(
                f"two tables are called {name}: {found[name]} and {source}",
                hint="only the default table has no name; pass the others as NAME=TABLE",
            )
        if not source:
            raise InputError(f"the table {name} has no folder", hint="--table NAME=FOLDER")
        found[name] = source
    return found


def require_extra() -> None:
    """Check that the packages of the extra are installed."""
    for package in ("fastapi", "uvicorn", "prometheus_client", "httpx"):
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
