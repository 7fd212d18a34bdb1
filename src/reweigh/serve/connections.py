"""Bounded connections: how many are open, how long a request's head may take, how long an answer may stay unread.

uvicorn bounds none of these: it keeps a connection that never finishes the head of its request, and waits for a client
that does not read. A connection that sends its body slowly is the business of ``body.py``.
"""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from reweigh.serve.bounds import Bounds
from reweigh.serve.problem import Problem


def bounded(bounds: Bounds) -> type[H11Protocol]:
    """The protocol class of one server, for uvicorn's ``http`` setting."""
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
        """Forget it."""
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
        """The client has read."""
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
        self._late = self.loop.call_later(self.bounds.head_seconds, self._give_up)

    def _stop_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._refuse(Problem(408, "the head of the request did not arrive in time", code="timeout"))

    def _refuse(self, problem: Problem) -> None:
        """Send an error if no answer was begun, and close."""
        self._stop_waiting()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE) and not self.transport.is_closing():
            body = json.dumps(problem.body()).encode()
            head = (
                f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()
