"""Run the server: sockets, signals and the log. On a stop, answers in progress are finished."""

from __future__ import annotations

import ipaddress
import logging
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from reweigh.errors import InputError, MissingExtraError

GRACE_SECONDS = 120


def require_extra() -> None:
    """Say what to install if the extra is missing."""
    for package in ("fastapi", "uvicorn", "prometheus_client"):
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
    """Bind an address before a model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen on {host} port {port} ({error})",
            hint="another program may be using it; --port 0 picks a free one",
        ) from error


def run(app: Any, taken: socket.socket, ready: Callable[[int], None] = lambda _port: None) -> None:
    """Serve at an address until a signal; ``ready`` is called with the port once requests are taken."""
    import uvicorn

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                ready(taken.getsockname()[1])

    _log_to_stderr()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
    )
    # uvicorn raises the signal again; a stop is the normal end
    with suppress(KeyboardInterrupt):
        Announcing(config).run(sockets=[taken])


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("reweigh.serve", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO if name == "reweigh.serve" else logging.WARNING)
