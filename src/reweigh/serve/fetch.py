"""Fetch images by URL, if the server's owner allows it: public addresses only, bounded in bytes and time.

The address that was checked is the one connected to, so a name that resolves differently a moment later gains nothing.
Every redirect is checked like the first address. One deadline covers everything, however slowly a server sends.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable

import httpx

from reweigh.errors import InputError
from reweigh.serve.problem import Problem, invalid

AT_ONCE = 8
"""Images that are fetched at the same time."""
REDIRECTS = 3
PORTS = {"http": 80, "https": 443}
UNICAST = ipaddress.ip_network("2000::/3")
"""The IPv6 addresses in use on the internet; all others are private, reserved, or lead to IPv4 through a gateway."""
DOCUMENTATION = ipaddress.ip_network("3fff::/20")
HEADERS = {"Accept": "image/*", "Accept-Encoding": "identity", "User-Agent": "reweigh"}
Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


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
        self._certificates = ssl.create_default_context()
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def fetch(self, url: str, param: str, hold: Callable[[int], None]) -> bytes:
        """Return the bytes behind a URL.

        Args:
            param: Names the image in an error.
            hold: Called with the size of each part; refuses if the server holds too many bytes.
        """
        client = httpx.AsyncClient(verify=self._certificates, trust_env=False, timeout=None)
        try:
            async with self._turns, asyncio.timeout(self.seconds), client:
                for _ in range(REDIRECTS + 1):
                    request = await self._request(client, url, param)
                    response = await client.send(request, stream=True)
                    if response.has_redirect_location:
                        url = str(httpx.URL(url).join(response.headers["location"]))
                        await response.aclose()
                        continue
                    if response.status_code != 200:
                        told = f"the image's address answered with status {response.status_code}"
                        raise _failed(param, told)
                    return await self._read(response, param, hold)
        except (TimeoutError, OSError, UnicodeError, httpx.HTTPError, httpx.InvalidURL):
            raise _failed(param, "the image could not be fetched") from None
        raise _failed(param, f"the image's URL redirects more than {REDIRECTS} times")

    async def _request(self, client: httpx.AsyncClient, url: str, param: str) -> httpx.Request:
        """Check a URL and its addresses; return a request to the first of them."""
        parts = httpx.URL(url)
        port = PORTS.get(parts.scheme) if parts.port is None else parts.port
        is_whole = parts.scheme in PORTS and parts.host and not parts.userinfo
        if not is_whole or not port or port > 65535 or not self._pattern.fullmatch(url):
            raise invalid(param, "this server does not fetch from that URL", code="url_not_allowed")
        host = parts.raw_host.decode("ascii")
        addresses = await self._resolve(host, port)
        if not addresses or not all(map(self._is_public, addresses)):
            raise invalid(param, "this server fetches from public addresses only", code="url_not_allowed")
        return client.build_request(
            "GET",
            parts.copy_with(host=addresses[0]),
            headers={**HEADERS, "Host": parts.netloc.decode("ascii")},
            extensions={"sni_hostname": host},  # the certificate must be the name's, not the address's
        )

    async def _read(self, response: httpx.Response, param: str, hold: Callable[[int], None]) -> bytes:
        kept = bytearray()
        async for chunk in response.aiter_raw():
            hold(len(chunk))
            kept += chunk
            if len(kept) > self.most:
                told = f"an image has more than {self.most:,} bytes"
                raise invalid(param, told, code="image_too_large", status=413)
        return bytes(kept)


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


def _failed(param: str, message: str) -> Problem:
    return invalid(param, message, code="image_not_fetched")
