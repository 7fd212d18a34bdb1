"""Checks of host, origin and key for every request, and one log line for each."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import time
import uuid
from collections.abc import Collection
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reweigh.serve.monitor import Metrics, logger, tell
from reweigh.serve.problem import Problem, problem_of, stopping

GUARDED = ("/v1", "/inspect", "/metrics")
LOGGED_BYTES = 200
"""Length of a path in the log."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}


class Gate:
    """ASGI middleware around the whole server.

    Args:
        key: What clients must present as bearer token; ``None`` lets everyone in.
        hosts: Names under which the server may be addressed, besides every address of this machine. A page of another
            site that points its own name to this machine (DNS rebinding) is refused.
        paths: Paths that are counted by name; what is below one that ends in "/" counts with it, anything else as
            "other".
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        key: str | None = None,
        hosts: Collection[str] = (),
        paths: Collection[str] = (),
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._key = None if key is None else key.encode()
        self._hosts = frozenset(name.lower() for name in hosts)
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = Visit(scope, self._metrics, self._counted(scope["path"]))

        async def send_marked(message: Message) -> None:
            visit.see(message)
            await send(message)

        try:
            problem = self._refusal(scope)
            answer: ASGIApp = self._app if problem is None else problem.response()
            await answer(scope, receive, send_marked)
        except asyncio.CancelledError:  # the server ends without waiting for its answers
            if not visit.status:
                await stopping().response()(scope, receive, send_marked)
        except BaseException as error:  # a panic in a tokenizer's Rust code is no Exception
            logger.error("%s failed", visit.number, exc_info=error)
            if visit.status:
                raise  # part of the response was sent: break the connection
            await problem_of(error).response()(scope, receive, send_marked)
        finally:
            visit.end()

    def _counted(self, path: str) -> str:
        if path in self._paths:
            return path
        above = (known for known in self._paths if known.endswith("/") and known != "/")
        return next((known for known in above if path.startswith(known)), "other")

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = {name.decode("latin-1").lower(): value for name, value in scope["headers"]}
        host = _host_name(headers.get("host", b"").decode("latin-1"))
        if not (host == "localhost" or host in self._hosts or _is_address(host)):
            return Problem(403, "this server does not answer to that host name", code="wrong_host")
        if {"content-length", "transfer-encoding"} <= headers.keys():
            told = "a request has either Content-Length or Transfer-Encoding"
            return Problem(400, told, code="bad_request", headers={"Connection": "close"})
        if not scope["path"].startswith(GUARDED):
            return None
        if scope["method"] == "POST" and not _is_same(headers.get("origin"), headers["host"]):
            return Problem(403, "pages of other origins may not use this server", code="cross_site")
        if headers.get("sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            return Problem(403, "pages of other sites may not use this server", code="cross_site")
        if self._key is None:
            return None
        scheme, _, given = headers.get("authorization", b"").partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._key):
            return None
        told, challenge = "the API key is missing or wrong", {"WWW-Authenticate": "Bearer"}
        return Problem(401, told, code="invalid_api_key", headers=challenge)


class Visit:
    """One request in progress: its id, its status, and the line logged just before its last byte is sent."""

    def __init__(self, scope: Scope, metrics: Metrics, path: str) -> None:
        self.number = f"req-{uuid.uuid4().hex[:16]}"
        self.status = 0
        self._metrics = metrics
        asked = scope.get("raw_path") or scope["path"].encode()
        self._what = f"{scope['method']} {asked[:LOGGED_BYTES].decode('ascii', 'backslashreplace')}"
        self._path = path
        self._begin = time.monotonic()
        self._note: dict[str, Any] = scope.setdefault("state", {}).setdefault("note", {})
        self._ended = False

    def see(self, message: Message) -> None:
        """Inspect a part of the response; add our headers to its head."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            marks = {**HEADERS, "x-request-id": self.number}
            own = [(name.encode(), value.encode()) for name, value in marks.items()]
            message["headers"] = [*message.get("headers", []), *own]
        elif not message.get("more_body", False):
            self.end()

    def end(self) -> None:
        """Count and log the request, once."""
        if self._ended:
            return
        self._ended = True
        passed = time.monotonic() - self._begin
        self._metrics.request(self._path, self.status, passed)
        tell(f"{self._what} {self.status}", id=self.number, ms=round(1000 * passed), **self._note)


def _host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


def _is_same(origin: bytes | None, host: bytes) -> bool:
    """Whether an Origin header, which only browsers send, is this server as the Host header calls it."""
    return origin is None or origin.partition(b"://")[2].lower() == host.lower()


def _is_address(host: str) -> bool:
    """Whether a Host header is an IP address, which no other site can claim."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
