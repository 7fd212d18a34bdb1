"""Read the body of a request within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request

from reweigh.serve.bounds import Bounds
from reweigh.serve.problem import Problem

VALUES = 10_000
"""Commas in a body beside those in its texts. Millions of fields would keep the event loop busy for a minute."""


async def read_body(request: Request, bounds: Bounds, hold: Callable[[int], None]) -> bytes:
    """The JSON body of a request; refused if it is too long or too slow.

    Args:
        hold: Told the size of each part; refuses if the server holds too many bodies.

    Raises:
        Problem: With the status for the client.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Problem(400, "the Content-Type must be application/json", code="not_json")
    most, kept = bounds.body_bytes, bytearray()
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > most:
        raise _too_long(most)
    try:
        async with asyncio.timeout(bounds.body_seconds):
            async for chunk in request.stream():
                hold(len(chunk))
                kept += chunk
                if len(kept) > most:
                    raise _too_long(most)
    except TimeoutError:
        raise Problem(408, "the request's body did not arrive in time", code="timeout") from None
    if kept.count(b",") > VALUES + bounds.prompt_tokens:
        raise Problem(400, "the request's body has too many values", code="body_too_large")
    return bytes(kept)


def _too_long(most: int) -> Problem:
    return Problem(413, f"the request's body has more than {most:,} bytes", code="body_too_large")
