"""Running the server: sockets, signals and the log. A stop finishes the answers under way."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from reweigh.errors import MissingExtraError

GRACE_SECONDS = 120


def require_extra() -> None:
    """Say what to install where the extra is missing."""
    for package in ("fastapi", "uvicorn"):
        try:
            __import__(package)
        except ImportError as error:
            raise MissingExtraError("reweigh serve", "serve", package) from error


def run(app: Any, *, host: str, port: int, ready: Callable[[int], None] = lambda _port: None) -> None:
    """Serve until a signal; ``ready`` is called with the port once requests are taken."""
    import uvicorn

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                ready(self.servers[0].sockets[0].getsockname()[1])

    _log_to_stderr()
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
    )
    with suppress(
        KeyboardInterrupt
    ):  # uvicorn repeats the signal that stopped it; to be stopped is how a server ends
        Announcing(config).run()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    for name in ("reweigh.serve", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO if name == "reweigh.serve" else logging.WARNING)
