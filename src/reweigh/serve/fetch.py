"""Fetch images by URL, if the server's owner allows it: public addresses only, bounded in bytes and time.

The address that was checked is the one connected to, so a name that resolves differently a moment later gains nothing.
Every redirect is checked like the first address. One deadline covers everything, however slowly a server sends.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from urllib.parse import SplitResult, urljoin, urlsplit

from reweigh.errors import InputError
from reweigh.serve.problem import Problem, invalid

REDIRECTS = 3
PORTS = {"http": 80, "https": 443}
UNICAST = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses in use on the internet; all others are private, reserved, or lead to IPv4 through a gateway."""
DOCUMENTATION = ipaddress.ip_network("3fff::/20")
Resolve = Callable[[str, int], list[str]]


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Fetcher:
    """Fetches what matches a pattern.

    Args:
        pattern: Regular expression that the whole URL must match, and that of every redirect.
        most: Bytes of one image.
        seconds: Time for one image, redirects included.
        is_public: Whether an address may be contacted; tests replace it, because they have no public address.
    """

    def __init__(
        self,
        pattern: str,
        *,
        most: int,
        seconds: float = 10.0,
        resolve: Resolve = resolve,
        is_public: Callable[[str], bool] | None = None,
    ) -> None:
        try:
            self._pattern = re.compile(pattern)
        except re.error as error:
            raise InputError(f"the URL pattern {pattern!r} is not a regular expression ({error})") from error
        self.most = most
        self.seconds = seconds
        self._resolve = resolve
        self._is_public = is_public or is_public_address

    def fetch(self, url: str, param: str) -> bytes:
        """The bytes behind a URL; ``param`` names it in an error."""
        ends = time.monotonic() + self.seconds
        for _ in range(REDIRECTS + 1):
            parts = self._check(url, param)
            try:
                answer = self._get(parts, ends)
            except Problem as problem:
                problem.param = param
                raise
            except (OSError, http.client.HTTPException, ValueError):
                raise _failed(param, "the image could not be fetched") from None
            if isinstance(answer, bytes):
                return answer
            url = urljoin(url, answer)
        raise _failed(param, f"the image's URL redirects more than {REDIRECTS} times")

    def _check(self, url: str, param: str) -> SplitResult:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise _failed(param, "the image's URL is not valid") from None
        allowed = parts.scheme in PORTS and parts.hostname and parts.username is None and port != 0
        if not allowed or not self._pattern.fullmatch(url):
            raise invalid(param, "this server does not fetch from that URL", code="url_not_allowed")
        return parts

    def _get(self, parts: SplitResult, ends: float) -> bytes | str:
        """The body, or where a redirect leads."""
        connection = self._connect(parts, ends)
        sock: socket.socket = connection.sock  # the connection forgets it when its server closes
        with _deadline(sock, ends), contextlib.closing(connection):
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("GET", path, headers={"Accept": "image/*", "User-Agent": "reweigh"})
            response = connection.getresponse()
            if response.status in (301, 302, 303, 307, 308):
                return response.headers.get("Location", "")
            if response.status != 200:
                raise _failed("", f"the image's address answered with status {response.status}")
            return self._read(response, sock, ends)

    def _connect(self, parts: SplitResult, ends: float) -> http.client.HTTPConnection:
        host, port = str(parts.hostname), parts.port or PORTS[parts.scheme]
        addresses = self._resolve(host, port)
        if not addresses or not all(map(self._is_public, addresses)):
            raise invalid(None, "this server fetches from public addresses only", code="url_not_allowed")
        connection = http.client.HTTPConnection(host, port, timeout=_left(ends))
        sock: socket.socket = socket.create_connection((addresses[0], port), timeout=_left(ends))
        try:
            if parts.scheme == "https":
                with _deadline(sock, ends):
                    sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        connection.sock = sock
        return connection

    def _read(self, response: http.client.HTTPResponse, sock: socket.socket, ends: float) -> bytes:
        kept = bytearray()
        while True:
            sock.settimeout(_left(ends))
            chunk = response.read1(1 << 16)
            if not chunk:
                _left(ends)  # a socket shut at the deadline looks like the end of the body
                if response.length:
                    raise http.client.IncompleteRead(bytes(kept), response.length)
                return bytes(kept)
            kept += chunk
            if len(kept) > self.most:
                raise Problem(413, f"an image has more than {self.most:,} bytes", code="image_too_large")


@contextlib.contextmanager
def _deadline(sock: socket.socket, ends: float) -> Iterator[None]:
    """Shut a socket at the deadline: a socket's own timeout starts again with every byte, and bytes may drip."""

    def shut() -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_left(ends), shut)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def is_public_address(address: str) -> bool:
    """Whether an address is on the open internet: not private, loopback, link-local, reserved or multicast."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if found.version == 6 and found.ipv4_mapped is None and (found not in UNICAST or found in DOCUMENTATION):
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return found.is_global and not found.is_multicast and (inner is None or is_public_address(str(inner)))


def _left(ends: float) -> float:
    left = ends - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _failed(param: str, message: str) -> Problem:
    return Problem(400, message, param=param, code="image_not_fetched")
