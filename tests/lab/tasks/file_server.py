"""A loopback file server with ranges, marks and troubles, for tests of fetching."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from local_server import LocalServer, QuietHandler


@dataclass
class Served:
    """One file of the server and how it behaves."""

    body: bytes
    etag: str | None = '"one"'
    length: bool = True
    chunked: bool = False
    ranges: bool = True
    cuts: list[int] = field(default_factory=list)
    """After how many bytes the next answers break off."""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next answers, before any body is sent."""
    moved_to: str | None = None


class FileServer(LocalServer):
    def __init__(self) -> None:
        self.files: dict[str, Served] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.sent = 0
        outer = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, self.headers.get("range")))
                served = outer.files.get(self.path)
                if served is None:
                    return self._empty(404)
                if served.moved_to:
                    return self._empty(302, location=served.moved_to)
                if served.statuses:
                    return self._empty(served.statuses.pop(0))
                return self._send(served)

            def _empty(self, status: int, **headers: str) -> None:
                self.send_response(status)
                self.send_header("content-length", "0")
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _send(self, served: Served) -> None:
                start = self._start(served)
                if start > len(served.body):
                    return self._empty(416)
                body = served.body[start:]
                self.send_response(206 if start else 200)
                if start:
                    self.send_header(
                        "content-range", f"bytes {start}-{len(served.body) - 1}/{len(served.body)}"
                    )
                if served.etag:
                    self.send_header("etag", served.etag)
                if served.chunked:
                    self.send_header("transfer-encoding", "chunked")
                elif served.length:
                    self.send_header("content-length", str(len(body)))
                else:
                    self.send_header("connection", "close")
                    self.close_connection = True
                self.end_headers()
                cut = served.cuts.pop(0) if served.cuts else None
                self._body(body if cut is None else body[:cut], served.chunked, cut is not None)
                return None

            def _start(self, served: Served) -> int:
                asked = self.headers.get("range")
                if not asked or not served.ranges or self.headers.get("if-range") != served.etag:
                    return 0
                return int(asked.removeprefix("bytes=").removesuffix("-"))

            def _body(self, body: bytes, chunked: bool, cut: bool) -> None:
                if chunked:
                    self.wfile.write(
                        f"{len(body):x}\r\n".encode() + body + b"\r\n" + (b"" if cut else b"0\r\n\r\n")
                    )
                else:
                    self.wfile.write(body)
                outer.sent += len(body)
                self.wfile.flush()
                if cut:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)

        super().__init__(Handler)

    def url(self, path: str) -> str:
        return f"{self.address}{path}"
