"""From the pieces of a request's rows to OpenAI's answers and frames, with a deadline and an eye on the client."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

from reweigh.serve.bounds import DEFAULT
from reweigh.serve.monitor import Metrics
from reweigh.serve.problem import Deadline, Problem
from reweigh.serve.row import Piece, Row
from reweigh.serve.scheduler import Scheduler
from reweigh.serve.wire import ChatRequest
from reweigh.text import replace_surrogates

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
        self._gone = asyncio.create_task(self._until_gone(receive))

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
        """Free whatever is not finished."""
        self._scheduler.leave(self._rows)
        self._rows = ()  # they know where to send, which would keep both alive
        self._gone.cancel()

    @staticmethod
    async def _until_gone(receive: Callable[[], Awaitable[Any]]) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass


class Reply:
    """Turns the pieces of a request into OpenAI's objects."""

    def __init__(self, model: str, asked: ChatRequest, rows: Sequence[Row]) -> None:
        self._rows = rows
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": None,
        }
        self._with_usage = asked.stream_options is not None and asked.stream_options.include_usage
        self._counts = [0] * len(rows)

    def count(self, metrics: Metrics, note: dict[str, Any]) -> None:
        """Count what was written, and note it for the log."""
        first, generated, changed = self._rows[0], sum(self._counts), self._changed()
        note |= {"new": generated, "changed": changed}
        metrics.tokens.labels("prompt").inc(first.prepared.prompt_tokens)
        metrics.tokens.labels("generated").inc(generated)
        metrics.answers(first.decoder, first.table, len(self._rows), changed)

    @property
    def outcome(self) -> str:
        """What was done to the answers, for a header: edited with which beta, layer and table, or by which decoder.

        ``changed`` is there once the answers are complete.
        """
        row = self._rows[0]
        table = "" if row.table in (None, DEFAULT) else f"; table={row.table}"
        if row.session is not row.table_session or not any(one.beta for one in self._rows):
            return f"unedited; decoder={row.decoder}{table}"
        if row.prepared.key is None:
            return f"unedited; no image{table}"
        betas = ",".join(dict.fromkeys(f"{one.beta:g}" for one in self._rows))
        changed = f"; changed={self._changed()}" if all(one.done for one in self._rows) else ""
        return f"edited; beta={betas}; layer={row.table_session.layer}{table}{changed}"

    def _changed(self) -> int:
        """Steps so far at which the edit put another token first, over all choices."""
        return sum(row.changed for row in self._rows)

    def _usage(self) -> dict[str, int]:
        prompt, generated = self._rows[0].prepared.prompt_tokens, sum(self._counts)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": generated,
            "total_tokens": prompt + generated,
        }

    async def whole(self, answers: Answers) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        pieces: list[list[Piece]] = [[] for _ in self._rows]
        async for piece in answers.pieces():
            pieces[piece.index].append(piece)
            self._counts[piece.index] = piece.count
        choices = []
        for row, own in zip(self._rows, pieces, strict=True):
            text = replace_surrogates("".join(piece.text for piece in own))
            message = {"role": "assistant", "content": text, "refusal": None}
            choices.append(self._choice(row, {"message": message}, own, own[-1].finish))
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": self._usage()}

    async def frames(self, first: Piece, rest: AsyncIterator[Piece]) -> AsyncIterator[str]:
        """The server-sent events of a streaming request; an error is the last frame but one."""
        for row in self._rows:
            yield self._frame([self._choice(row, {"delta": {"role": "assistant", "content": ""}})])
        try:
            for frame in self._frames_of(first):
                yield frame
            async for piece in rest:
                for frame in self._frames_of(piece):
                    yield frame
            if self._with_usage:
                yield self._frame([], usage=self._usage())
        except Problem as problem:
            yield _event(problem.body())
        yield "data: [DONE]\n\n"

    def _frames_of(self, piece: Piece) -> Iterator[str]:
        row = self._rows[piece.index]
        self._counts[piece.index] = piece.count or self._counts[piece.index]
        if piece.text or piece.tokens or piece.logprobs:
            delta = {"content": replace_surrogates(piece.text)}
            yield self._frame([self._choice(row, {"delta": delta}, [piece])])
        if piece.finish is not None:
            yield self._frame([self._choice(row, {"delta": {}}, finish=piece.finish)])

    def _choice(
        self, row: Row, said: dict[str, Any], pieces: Sequence[Piece] = (), finish: str | None = None
    ) -> dict[str, Any]:
        """A choice of an answer or a frame: what is said, log-probabilities and tokens of some pieces."""
        logprobs = [entry for piece in pieces for entry in piece.logprobs]
        choice = {
            "index": row.index,
            **said,
            "logprobs": {"content": logprobs, "refusal": None}
            if pieces and row.logprobs is not None
            else None,
            "finish_reason": finish,
        }
        if pieces and row.explains:
            session = row.table_session
            choice["reweigh"] = {
                "decoder": row.decoder,
                **({} if row.table in (None, DEFAULT) else {"table": row.table}),
                "beta": row.beta if row.session is session else None,
                "layer": None if session is None else session.layer,
                "b0": None if session is None else session.table.scale,
                "tokens": [token for piece in pieces for token in piece.tokens],
            }
        return choice

    def _frame(self, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> str:
        frame = {**self._head, "object": "chat.completion.chunk", "choices": choices}
        return _event({**frame, "usage": usage} if self._with_usage else frame)


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"
