"""The queue, and the one thread that runs the model; compatible rows are decoded together.

Clients take turns, and so do the requests of each client: a short request never waits for all choices of another. New
rows join at the next batch. A client that disconnects frees its row: a waiting one is dropped, one in progress ends
at its next token. One thread, because several families keep the state of a generation on the model itself.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from reweigh.serve.batch import decode, streams
from reweigh.serve.bounds import Bounds
from reweigh.serve.monitor import Metrics, logger
from reweigh.serve.prepare import stackable
from reweigh.serve.problem import Deadline, Problem, problem_of, stopping
from reweigh.serve.recall import Recall
from reweigh.serve.row import Piece, Row
from reweigh.serve.thread import SingleThread, return_memory

T = TypeVar("T")

GATHER_SECONDS = 0.05
"""How long an idle server waits for requests that are still being prepared."""
IDLE_SECONDS = 1.0
"""Seconds without a request after which freed memory is returned to the system."""
BODIES = 32
"""How many bodies of the maximum size may be in memory at once."""
CLIENTS = 2
"""One client gets at most one of so many shares of the queue and of the bytes in memory."""


class Scheduler:
    """Decodes waiting rows in batches.

    One client has at most half of the queue and of the bytes in memory. All belongs to the event loop, so nothing here
    needs a lock between threads. Batches and other work of the model take turns in the model's thread.
    """

    def __init__(
        self, bounds: Bounds, metrics: Metrics, recall: Recall, *, hidden: Sequence[str] = ()
    ) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._recall = recall
        self._hidden = tuple(hidden)
        self._waiting: list[Row] = []
        self._running = 0
        self._requests = 0
        self._tasks: Counter[str] = Counter()
        self._arriving: Counter[str] = Counter()
        self._held: Counter[str] = Counter()
        self._stopping = False
        self._batch_seconds = 1.0
        self._changed = asyncio.Event()
        self._thread = SingleThread("reweigh-serve")
        self._worker: asyncio.Task[None] | None = None
        metrics.watch("reweigh_waiting_rows", "Answers waiting.", self._waiting_rows)
        metrics.watch("reweigh_running_rows", "Answers being decoded.", lambda: self._running)

    def start(self) -> None:
        """Start to decode."""
        self._worker = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """Finish waiting rows and rows in progress, then end."""
        self._stopping = True
        self._changed.set()
        if self._worker is not None:
            await self._worker
        await asyncio.to_thread(self._thread.shutdown)

    @contextmanager
    def receiving(self, client: str) -> Iterator[Callable[[int], None]]:
        """Read a request. Yields a function that counts the bytes it holds; it refuses when there are too many."""
        held = 0

        def hold(count: int) -> None:
            nonlocal held
            self._take_share(self._held, client, count, BODIES * self._bounds.body_bytes)
            held += count

        try:
            yield hold
        finally:
            _give_back(self._held, client, held)

    @contextmanager
    def arriving(self, client: str) -> Iterator[None]:
        """Prepare a request whose body has arrived; the next batch waits for it briefly."""
        self._take_share(self._arriving, client, 1, self._bounds.queue)
        try:
            yield
        finally:
            _give_back(self._arriving, client, 1)
            self._changed.set()

    def submit(self, rows: Sequence[Row], client: str = "") -> None:
        """Queue rows for a batch, or refuse them all if the queue is full."""
        self._require_running()
        self._waiting = [row for row in self._waiting if not row.left]
        waiting = Counter(row.client for row in self._waiting)
        self._take_share(waiting, client, len(rows), self._bounds.queue)
        for place, row in enumerate(rows):
            row.client, row.order = client, self._requests + place * self._bounds.batch
        self._requests += 1
        self._waiting.extend(rows)
        self._changed.set()

    async def run(self, task: Callable[[], T], client: str = "") -> T:
        """Run another task in the model's thread, when it is its turn."""
        self._require_running()
        self._take_share(self._tasks, client, 1, self._bounds.queue)
        try:
            return await self._thread.run(task, client)
        finally:
            _give_back(self._tasks, client, 1)

    def _take_share(self, taken: Counter[str], client: str, count: int, most: int) -> None:
        """Count what a client takes, or refuse it: half of what there is at most."""
        if taken.total() + count > most or taken[client] + count > math.ceil(most / CLIENTS):
            raise self._full()
        taken[client] += count

    def busy_seconds(self) -> float:
        """Return how long the model's thread has been busy with one piece of work; 0 while it waits."""
        return self._thread.busy_seconds()

    def takes_more(self) -> bool:
        """Whether the queue has room."""
        return not self._stopping and self._waiting_rows() + self._arriving.total() < self._bounds.queue

    def _waiting_rows(self) -> int:
        """Count the waiting rows whose clients are still there."""
        return sum(not row.left for row in self._waiting)

    def _full(self) -> Problem:
        batches = math.ceil(len(self._waiting) / self._bounds.batch) or 1
        seconds = max(1, math.ceil(batches * self._batch_seconds))
        return Problem(
            429,
            f"the queue is full; this server queues at most {self._bounds.queue} answers, half of them for one client",
            code="queue_full",
            headers={"Retry-After": str(min(seconds, 60))},
        )

    def _require_running(self) -> None:
        if self._stopping:
            raise stopping()

    async def _work(self) -> None:
        while self._waiting or not self._stopping:
            if self._waiting:
                async with self._thread.free:
                    await self._decode_next()
            else:
                await self._rest()

    async def _rest(self) -> None:
        """Wait for work; return freed memory to the system if none comes for a while."""
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(IDLE_SECONDS):
                await self._changed.wait()
                return
        await asyncio.to_thread(return_memory)
        await self._changed.wait()

    async def _decode_next(self) -> None:
        """Decode the next batch; keep no reference to it afterwards."""
        with suppress(TimeoutError):
            async with asyncio.timeout(GATHER_SECONDS):
                while self._arriving.total() and len(self._waiting) < self._bounds.batch:
                    self._changed.clear()
                    await self._changed.wait()
        rows = self._take()
        self._running, begin = len(rows), time.monotonic()
        try:
            await self._thread.start(partial(self._decode, rows))
        finally:
            self._running = 0
        self._batch_seconds += 0.3 * (time.monotonic() - begin - self._batch_seconds)

    def _take(self) -> list[Row]:
        """Take the row whose turn it is and those behind it that can be decoded with it."""
        taken: list[Row] = []
        rest: list[Row] = []
        shapes = None
        for row in in_turn(row for row in self._waiting if not row.left):
            if not taken:
                taken, shapes = [row], row.prepared.shapes
            elif (
                len(taken) < self._bounds.batch
                and row.session is taken[0].session
                and _shares(row)
                and stackable(row.prepared.shapes, shapes)
            ):
                taken.append(row)
                shapes = shapes or row.prepared.shapes
            else:
                rest.append(row)
        self._waiting = rest
        return taken

    def _decode(self, rows: Sequence[Row]) -> None:
        """Decode a batch; if it fails before the first token, retry each row alone, so that one cannot harm others."""
        live = [row for row in rows if not row.done and not row.left]
        if not live:
            return
        self._metrics.batch_rows.observe(len(live))
        try:
            decode(live, self._recall, self._metrics)
        except BaseException as error:  # a panic in a tokenizer's Rust code is not an Exception
            if len(live) > 1 and not any(row.written for row in live):
                for row in live:
                    self._decode([row])
                return
            problem = problem_of(error, self._hidden)
            if problem.status >= 500:
                logger.error("a batch failed", exc_info=error)
            for row in live:
                row.fail(problem)
        for row in live:  # nothing may wait forever
            if not row.left:
                row.fail(Problem(500, "the answer ended early", code="internal_error"))


def in_turn(rows: Iterable[Row]) -> list[Row]:
    """Sort rows: one of each client, then a second of each, and so on; those that have waited longest come first.

    Of one client, a request's second row comes after the first rows of the next 16 requests (with batches of 16), not
    after all that arrive later: nothing waits forever.
    """
    turns: Counter[str] = Counter()
    ranked = []
    for row in sorted(rows, key=lambda row: row.order):
        ranked.append((turns[row.client], row))
        turns[row.client] += 1
    return [row for _, row in sorted(ranked, key=lambda pair: pair[0])]


def _give_back(taken: Counter[str], client: str, count: int) -> None:
    taken[client] -= count
    if not taken[client]:
        del taken[client]


def _shares(row: Row) -> bool:
    """Whether a row may share a batch; rivals that draw noise or search beams would depend on their neighbors."""
    return not row.session.decoder.is_rival and streams(row.session)


class ClientLeft(Exception):
    """The client has disconnected."""


class Answers:
    """Receives the pieces of a request's rows in the event loop.

    Args:
        scheduler: Decodes the rows.
        deadline: When all answers must be complete.
        receive: The request's ASGI channel, which reports that the client has disconnected.
        client: The client's address.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        deadline: Deadline,
        receive: Callable[[], Awaitable[Any]],
        client: str = "",
    ) -> None:
        self.client = client
        self._scheduler = scheduler
        self._loop = asyncio.get_running_loop()
        self._pieces: asyncio.Queue[Piece] = asyncio.Queue()
        self.deadline = deadline
        self._rows: Sequence[Row] = ()
        self._gone = asyncio.create_task(self._until_gone(receive))

    def send(self, piece: Piece) -> None:
        """Accept a piece, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
        except RuntimeError:  # the loop is closed: the server has stopped
            self._leave()

    def submit(self, rows: Sequence[Row]) -> None:
        """Queue the rows for a batch."""
        self._rows = rows
        self._scheduler.submit(rows, self.client)

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield all pieces as they come, up to the last piece of the last row.

        Raises:
            Problem: An answer failed, or the time is up.
            ClientLeft: The client has disconnected.
        """
        open_rows = len(self._rows)
        while open_rows:
            piece = await self.within(self._pieces.get())
            if piece.problem is not None:
                raise piece.problem
            open_rows -= piece.ends
            yield piece

    async def within(self, work: Awaitable[T]) -> T:
        """Wait for something until the time is up or the client leaves."""
        waited = asyncio.ensure_future(work)
        try:
            await asyncio.wait(
                {waited, self._gone}, timeout=self.deadline.left(), return_when=asyncio.FIRST_COMPLETED
            )
            if waited.done():
                return waited.result()
            if self._gone.done():
                raise ClientLeft
            raise self.deadline.over()
        finally:
            waited.cancel()

    def close(self) -> None:
        """Free the rows that are not finished."""
        self._leave()
        self._rows = ()  # they know where to send, which would keep both alive
        self._gone.cancel()

    def _leave(self) -> None:
        for row in self._rows:
            row.left = True

    @staticmethod
    async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
