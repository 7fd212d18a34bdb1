"""A real local HTTP server that plays the judge, obedient or troublesome as a test wants it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from local_server import LocalServer, QuietHandler

Answer = tuple[int, dict[str, str], bytes] | str
"""Status, headers and body; or the name of a trouble: "cut", "half", "slow", "drip" (a byte now and then)."""


def completion(text: str | None) -> Answer:
    body = {"model": "judge", "choices": [{"message": {"role": "assistant", "content": text}}]}
    return 200, {"content-type": "application/json"}, json.dumps(body).encode()


class JudgeServer(LocalServer):
    """Answers each request by ``script(request body, number of the request)``."""

    def __init__(self, script: Callable[[dict[str, Any], int], Answer]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(QuietHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                with outer._lock:
                    number = len(outer.requests)
                    outer.requests.append(body | {"path": self.path})
                    outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                    outer._now += 1
                    outer.most_at_once = max(outer.most_at_once, outer._now)
                try:
                    self._play(script(body, number))
                finally:
                    with outer._lock:
                        outer._now -= 1

            def _play(self, answer: Answer) -> None:
                if isinstance(answer, str):
                    return self._trouble(answer)
                status, headers, body = answer
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                return None

            def _trouble(self, kind: str) -> None:
                self.close_connection = True
                if kind == "slow":
                    self.connection.recv(1)  # until the client goes away
                elif kind == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n")
                    for part in [b" "] * 30 + [b"{}"]:  # in the end a whole reply, if anybody waits for it
                        self.wfile.write(part)
                        self.wfile.flush()
                        time.sleep(0.05)
                elif kind == "half":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{")
                    self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        super().__init__(Handler)

    @property
    def url(self) -> str:
        return f"{self.address}/v1"


def question_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])
