"""Run the server: uvicorn with bounded connections, signals and a log. A stop finishes the answers in progress.

By itself, uvicorn bounds neither the number of connections nor the time of a request's head, and waits forever for a
client that does not read. ``wire.read_body`` bounds the time of a body.
"""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
import time
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from reweigh.serve.app import Server
from reweigh.serve.bounds import Bounds
from reweigh.serve.monitor import log_to_stderr, tell
from reweigh.serve.problem import Problem

GRACE_SECONDS = 120


def run(server: Server, taken: socket.socket, *, host: str, json: bool = False) -> None:
    """Serve at an address until a signal; SIGHUP reads the tables again."""
    log_to_stderr(as_json=json)
    begin = time.monotonic()
    gc.collect()
    gc.freeze()  # a collection would stop all threads to look through the model's modules

    def reload() -> None:
        reloading = asyncio.ensure_future(server.scheduler.run(server.reload_tables))
        reloading.add_done_callback(lambda done: done.exception())  # it is in the log

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets=sockets)
            if not self.started:
                return
            name = f"[{host}]" if ":" in host else host
            server.announce(f"{server.served.name} at http://{name}:{taken.getsockname()[1]} (Ctrl-C stops)")
            if hasattr(signal, "SIGHUP"):
                asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)

    # uvicorn raises the signal again; a stop is the normal end
    with suppress(KeyboardInterrupt):
        Announcing(settings(server)).run(sockets=[taken])
    tell("stopped", seconds=round(time.monotonic() - begin), **server.metrics.totals())


def settings(server: Server) -> uvicorn.Config:
    """Return uvicorn's settings for a server."""
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


def bounded(bounds: Bounds) -> type[H11Protocol]:
    """Make the protocol class of one server, for uvicorn's ``http`` setting."""
    return type("BoundedConnection", (Connection,), {"bounds": bounds, "idle": {}})


class Connection(H11Protocol):
    """One connection of a server.

    Attributes:
        bounds: Those of the server.
        idle: The server's connections without a request in progress, the one that has waited longest first.
    """

    bounds: Bounds
    idle: dict[Connection, None]
    _late: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; if there are too many connections, close the one that has waited longest."""
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.bounds.connections:
            longest = next(iter(self.idle))
            longest._refuse(Problem(503, "the server has too many connections", code="too_many_connections"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_waiting()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read some bytes; once they complete the head of a request, the connection is no longer idle."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it came with this one."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._await_head()

    def pause_writing(self) -> None:
        """Give the client some time to read."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(self.bounds.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop the clock: the client has read."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP."""
        self._refuse(
            Problem(400, "this is not a valid HTTP request, or its head is too long", code="bad_request")
        )

    def _await_head(self) -> None:
        self._stop_waiting()
        self.idle[self] = None
        too_late = Problem(408, "the head of the request did not arrive in time", code="timeout")
        self._late = self.loop.call_later(self.bounds.head_seconds, self._refuse, too_late)

    def _stop_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _refuse(self, problem: Problem) -> None:
        """Send an error unless a response has started, and close."""
        self._stop_waiting()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps(problem.body()).encode()
            head = (
                f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
