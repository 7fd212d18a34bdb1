"""One thread that works for the event loop, on one thing at a time."""

from __future__ import annotations

import asyncio
import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


def return_memory() -> None:
    """Give freed memory back to the system; glibc keeps what large pictures needed."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


class SingleThread:
    """A thread whose work is done in order of arrival; of each client, one piece of work is in the line at a time.

    Work waits in the event loop, not in the thread: whoever gives up leaves nothing behind. Work that has begun cannot
    be interrupted, so the thread stays taken until it ends, even if nobody waits for it.

    Attributes:
        free: Held by whoever uses the thread.
    """

    def __init__(self, name: str) -> None:
        self.free = asyncio.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._begun: float | None = None
        self._waiting = 0
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def run(self, work: Callable[[], T], client: str = "") -> T:
        """Work when it is the client's turn."""
        turn = self._turns.setdefault(client, asyncio.Lock())
        self._waiting += 1
        try:
            await turn.acquire()
            try:
                await self.free.acquire()
            except BaseException:
                turn.release()
                raise
        finally:
            self._waiting -= 1
        running = self.start(work)

        def end(_: object) -> None:
            self.free.release()
            turn.release()

        running.add_done_callback(end)
        return await asyncio.shield(running)

    def works(self) -> int:
        """Return how many callers of ``run`` wait, plus one if the thread works."""
        return self._waiting + (self._begun is not None)

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Work now; the caller holds ``free``."""

        def timed() -> T:
            self._begun = time.monotonic()
            try:
                return work()
            finally:
                self._begun = None

        return asyncio.get_running_loop().run_in_executor(self._executor, timed)

    def busy_seconds(self) -> float:
        """Return how long the thread has worked on one thing; 0 while it waits."""
        begun = self._begun
        return 0.0 if begun is None else time.monotonic() - begun

    def shutdown(self) -> None:
        """Wait for the work in progress, and end."""
        self._executor.shutdown()
