"""One thread that works for the event loop, on one thing at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class SingleThread:
    """A thread whose work is done in order of arrival.

    Work waits in the event loop, not in the thread: whoever gives up leaves nothing behind. Work that has begun cannot
    be interrupted, so the thread stays taken until it ends, even if nobody waits for it.

    Attributes:
        free: Held by whoever uses the thread.
        works: Calls of ``run`` that wait or are in progress.
    """

    def __init__(self, name: str) -> None:
        self.free = asyncio.Lock()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._begun: float | None = None
        self.works = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Work when it is its turn."""
        self.works += 1
        try:
            await self.free.acquire()
        except BaseException:
            self.works -= 1
            raise
        running = self.start(work)
        running.add_done_callback(self._finish)
        return await asyncio.shield(running)

    def _finish(self, _: asyncio.Future[Any]) -> None:
        self.works -= 1
        self.free.release()

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
