"""Run the server: signals and the log. On a stop, answers in progress are finished."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import suppress
from typing import Any

import uvicorn

from reweigh.serve.app import Server
from reweigh.serve.connections import bounded
from reweigh.serve.logs import log_to_stderr, tell

GRACE_SECONDS = 120


def run(server: Server, taken: socket.socket, *, host: str, json: bool = False) -> None:
    """Serve at an address until a signal; SIGHUP reads the table again."""
    log_to_stderr(as_json=json)
    begin = time.monotonic()

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if self.started:
                _announce(server, f"http://{_bracketed(host)}:{taken.getsockname()[1]}")

        async def shutdown(self, sockets: Any = None) -> None:
            await super().shutdown(sockets=sockets)
            tell("stopped", seconds=round(time.monotonic() - begin), **server.metrics.totals())

    # uvicorn raises the signal again; a stop is the normal end
    with suppress(KeyboardInterrupt):
        Announcing(settings(server)).run(sockets=[taken])


def settings(server: Server) -> uvicorn.Config:
    """uvicorn's settings for a server."""
    return uvicorn.Config(
        server.app(),
        http=bounded(server.bounds),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
        port=0,
    )


def _announce(server: Server, url: str) -> None:
    summary = server.served.summary()
    tell(f"{server.served.name} at {url} (Ctrl-C stops)", **summary)
    if hasattr(signal, "SIGHUP"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
