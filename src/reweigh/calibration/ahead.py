"""Work done by threads ahead of its taker: items are read by several, and each batch of them is built by one more.

Order is kept whoever is done first, and look-ahead is bounded. Knows neither pictures nor models.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Read = TypeVar("Read")
Built = TypeVar("Built")

READERS = min(8, os.cpu_count() or 1)
"""Threads that read; their number changes nothing but time."""


def build_ahead(
    batches: Iterable[Sequence[Item]], read: Callable[[Item], Read], build: Callable[[list[Read]], Built]
) -> Generator[Built, None, None]:
    """Yield ``build([read(item) for item in batch])`` of each batch, in their order.

    While the taker has one batch, the next is built and the one after it is read, so what was read of two batches is
    held at most. An error is raised in its batch's turn. Close the generator to end its threads: what has not begun is
    dropped, what runs is waited for.
    """

    def build_read(items: list[Future[Read]]) -> Built:
        return build([item.result() for item in items])

    readers = ThreadPoolExecutor(READERS, thread_name_prefix="reweigh-read")
    builder = ThreadPoolExecutor(1, thread_name_prefix="reweigh-build")
    try:
        reading = (
            [readers.submit(read, item) for item in batch] for batch in batches
        )  # begins when asked for
        waiting = deque(islice(reading, 2))
        ready: list[Built] = []
        while waiting:
            building = builder.submit(build_read, waiting.popleft())
            yield from ready
            ready = [building.result()]
            waiting.extend(islice(reading, 1))
        yield from ready
    finally:
        readers.shutdown(wait=False, cancel_futures=True)  # first, so that a build that waits for them ends
        builder.shutdown(wait=True, cancel_futures=True)
        readers.shutdown(wait=True)
