"""The answers to one request, collected piece by piece from the decoding thread, with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

from reweigh.serve.deadline import Deadline
from reweigh.serve.row import Piece, Row
from reweigh.serve.scheduler import Scheduler

T = TypeVar("T")


class ClientLeft(Exception):
    """The client has disconnected."""


class Answers:
    """Receives the pieces of a request's rows in the event loop.

    Args:
        scheduler: Who decodes.
        deadline: When all answers must be complete.
        receive: The request's ASGI channel, which signals that its client has left.
    """

    def __init__(
        self, scheduler: Scheduler, deadline: Deadline, receive: Callable[[], Awaitable[Any]]
    ) -> None:
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self.deadline = deadline
        self._rows: Sequence[Row] = ()
        self._gone = asyncio.create_task(_until_gone(receive))

    def send(self, piece: Piece) -> None:
        """Take a piece, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: the server is gone
            self._scheduler.leave(self._rows)

    def submit(self, rows: Sequence[Row]) -> None:
        """Queue the rows for a batch."""
        self._rows = rows
        self._scheduler.submit(rows)

    async def pieces(self) -> AsyncIterator[Piece]:
        """All pieces as they come; ends with the last piece of the last row.

        Raises:
            Problem: An answer failed, or the time is over.
            ClientLeft: The client is gone.
        """
        open_rows = len(self._rows)
        while open_rows:
            piece = await self.within(self._pieces.get())
            if piece.problem is not None:
                raise piece.problem
            open_rows -= piece.ends
            yield piece

    async def within(self, work: Awaitable[T]) -> T:
        """Wait for something as long as there is time and a client."""
        waited = asyncio.ensure_future(work)
        try:
            await asyncio.wait(
                {waited, self._gone},
                timeout=self.deadline.left(),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if waited.done():
                return waited.result()
            if self._gone.done():
                raise ClientLeft
            raise self.deadline.over()
        finally:
            waited.cancel()

    async def close(self) -> None:
        """Free whatever is not finished."""
        self._scheduler.leave(self._rows)
        self._rows = ()  # they know where to send, which would keep both alive
        self._gone.cancel()


async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
