"""Run the server: uvicorn, signals and a log. A stop finishes the answers in progress.

uvicorn bounds neither the time of a request's head nor that of a client that does not read: a proxy does.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
from contextlib import suppress
from typing import Any

import uvicorn

from reweigh.serve.app import Server
from reweigh.serve.monitor import log_to_stderr, tell

GRACE_SECONDS = 120
CONNECTIONS = 512
"""Open connections, at least two for each place in the queue; requests on more are answered with 503."""


def run(server: Server, taken: socket.socket, *, host: str, json: bool = False) -> None:
    """Serve at an address until a signal; SIGHUP reads the table again."""
    log_to_stderr(as_json=json)
    begin = time.monotonic()
    gc.collect()
    gc.freeze()  # a collection would stop all threads to look through the model's modules

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if not self.started:
                return
            name = f"[{host}]" if ":" in host else host
            address = f"http://{name}:{taken.getsockname()[1]}"
            tell(f"{server.served.name} at {address} (Ctrl-C stops)", **server.served.summary())
            if hasattr(signal, "SIGHUP"):
                loop, reloads = asyncio.get_running_loop(), set[asyncio.Task[None]]()
                loop.add_signal_handler(signal.SIGHUP, lambda: reloads.add(loop.create_task(server.reload())))

    # uvicorn raises the signal again; a stop is the normal end
    with suppress(KeyboardInterrupt):
        Announcing(settings(server)).run(sockets=[taken])
    tell("stopped", seconds=round(time.monotonic() - begin), **server.metrics.totals())


def settings(server: Server) -> uvicorn.Config:
    """Return uvicorn's settings for a server."""
    return uvicorn.Config(
        server.app(),
        http="h11",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=max(CONNECTIONS, 2 * server.bounds.queue),
        timeout_graceful_shutdown=GRACE_SECONDS,
        lifespan="on",
        port=0,
    )
