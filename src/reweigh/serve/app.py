"""The routes of the server; docs/serve.md is their contract."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from reweigh.errors import ReweighError
from reweigh.serve import inspect
from reweigh.serve.bounds import Bounds
from reweigh.serve.chat import Reply, check_prompt, make_rows
from reweigh.serve.fetch import Fetcher
from reweigh.serve.gate import Gate
from reweigh.serve.monitor import Metrics, logger, tell
from reweigh.serve.prepare import LANES, LARGE, Prepared, find_pictures, open_pictures, read_pictures
from reweigh.serve.problem import Deadline, Problem, invalid, problem_of
from reweigh.serve.scheduler import Answers, ClientLeft, Scheduler
from reweigh.serve.served import Served
from reweigh.serve.thread import SingleThread, return_memory
from reweigh.serve.wire import (
    ChatRequest,
    CheckRequest,
    Conversation,
    HeatRequest,
    WordsRequest,
    parse,
    read_body,
    unknown_name,
)

T = TypeVar("T")
Asked = TypeVar("Asked", bound=Conversation)

STATIC = Path(__file__).parent / "static"
FOLDERS = ("/v1/models/", "/css/", "/js/")
"""Paths below these are counted together."""
STUCK = 2.0
"""Multiples of a request's time after which a busy thread counts as stuck."""
CHARACTERS_PER_TOKEN = 16
"""No text has more characters for each of its tokens; longer ones are refused before they are tokenized."""
CLIENT_LEFT = 499
"""Status in the log for a request whose client disconnected."""


class Server:
    """One model behind one application.

    Args:
        key: What clients must present as bearer token.
        hosts: Names under which the server may be addressed, besides addresses and localhost.
        fetcher: Fetches images by URL; ``None`` fetches none.
        log_prompts: Whether to log prompts.
    """

    def __init__(
        self,
        served: Served,
        bounds: Bounds | None = None,
        *,
        key: str | None = None,
        hosts: Collection[str] = (),
        fetcher: Fetcher | None = None,
        log_prompts: bool = False,
    ) -> None:
        self.served = served
        self.bounds = bounds or Bounds()
        self.metrics = Metrics()
        self.scheduler = Scheduler(self.bounds, self.metrics, served.recall, hidden=served.hidden)
        self._key = key
        self._hosts = hosts
        self._fetcher = fetcher
        self._log_prompts = log_prompts
        self._facts: dict[str, Any] | None = None
        self._started = int(time.time())
        self.metrics.build(served.summary())
        self._lanes = [SingleThread(f"reweigh-prepare-{lane}") for lane in LANES]
        for lane, thread in zip(LANES, self._lanes, strict=True):
            told = f"Requests with {lane} pictures that wait to be prepared or are."
            self.metrics.watch(f"reweigh_preparing_{lane}_pictures", told, thread.works)

    def app(self) -> Starlette:
        """Build the ASGI application."""
        measure = self._question(Conversation, inspect.measure_all)
        heat = self._question(HeatRequest, inspect.heat)
        words = self._question(WordsRequest, inspect.words)
        check = self._question(CheckRequest, inspect.evidence_to_check, inspect.check)
        routes = [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/health", self.ready),
            Route("/health/live", self.live),
            Route("/health/ready", self.ready),
            Route("/metrics", self.show_metrics),
            Route("/inspect/facts", self.facts),
            Route("/inspect/scene", self.scene),
            Route("/inspect/measure", measure, methods=["POST"]),
            Route("/inspect/heat", heat, methods=["POST"]),
            Route("/inspect/words", words, methods=["POST"]),
            Route("/inspect/check", check, methods=["POST"]),
        ]
        paths = frozenset(route.path for route in routes)
        handlers: dict[Any, Any] = {
            Problem: _refused,
            HTTPException: partial(_not_found, paths),
            ClientLeft: self._client_left,
            ClientDisconnect: self._client_left,
        }
        gate = Middleware(
            Gate, metrics=self.metrics, key=self._key, hosts=self._hosts, paths=[*paths, "/", *FOLDERS]
        )
        return Starlette(
            routes=[*routes, Mount("/", StaticFiles(directory=STATIC, html=True))],
            middleware=[gate],
            exception_handlers=handlers,
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        self.scheduler.start()
        with suppress(asyncio.CancelledError):  # a second Ctrl-C: the decoder's task is gone, too
            yield
            await self.scheduler.stop()
        for lane in self._lanes:
            lane.shutdown()

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        begin = time.monotonic()
        async with self._arrival(request, self._parse_chat) as (asked, prepared, answers):
            made = partial(make_rows, self.served, self.bounds, asked, prepared, answers.send)
            rows = await answers.within(self._lanes[0].run(made, answers.client))
            answers.submit(rows)
        reply = Reply(self.served.name, asked, rows)
        note: dict[str, Any] = request.scope["state"]["note"]
        note |= {"decoder": rows[0].decoder, "n": len(rows), "prompt": prepared.prompt_tokens}
        if self._log_prompts:
            note["asked"] = " | ".join(asked.texts)
        if asked.stream:
            return await self._stream(answers, reply, note, begin)
        try:
            whole = await reply.whole(answers)
        finally:
            answers.close()
            reply.count(self.metrics, note)
        return JSONResponse(whole, headers={"x-reweigh": reply.outcome})

    async def _stream(
        self, answers: Answers, reply: Reply, note: dict[str, Any], begin: float
    ) -> StreamingResponse:
        """Start a stream once its first piece has arrived, so that earlier failures get their own status."""
        pieces = answers.pieces()
        try:
            first = await anext(pieces)
        except BaseException:
            answers.close()
            raise
        self.metrics.first_token.observe(time.monotonic() - begin)

        closed = False

        def close(*, left: bool) -> None:
            nonlocal closed
            if not closed:
                closed = True
                answers.close()
                reply.count(self.metrics, note)
                self.metrics.left.inc(left)

        async def frames() -> AsyncIterator[str]:
            with suppress(ClientLeft):
                async for frame in reply.frames(first, pieces):
                    yield frame
                close(left=False)  # before the last byte, when the request is logged

        headers = {"X-Accel-Buffering": "no", "x-reweigh": reply.outcome}
        return _Stream(frames(), headers, partial(close, left=True))

    @asynccontextmanager
    async def _arrival(
        self, request: Request, read: Callable[[bytes], Asked]
    ) -> AsyncIterator[tuple[Asked, Prepared, Answers]]:
        """Read and prepare a request; yield what is asked, its inputs, and where its answers go.

        Until the block ends, the request counts as arriving: from its first byte its bytes are bounded, and once its
        body is complete it has a place in the queue.
        """
        client = "" if request.client is None else request.client.host
        deadline = Deadline(self.bounds.seconds)
        with self.scheduler.receiving(client) as hold:
            body = await read_body(request, self.bounds, hold)
            with self.scheduler.arriving(client):
                asked = read(body)
                answers = Answers(self.scheduler, deadline, request.receive, client)
                try:
                    yield asked, await answers.within(self._prepare(asked, answers, hold)), answers
                except BaseException:
                    answers.close()
                    raise

    def _parse_chat(self, body: bytes) -> ChatRequest:
        asked = parse(ChatRequest, body)
        self._require_model(asked.model)
        return asked

    def _require_model(self, name: str) -> None:
        if name not in self.served.names:
            raise unknown_name(
                "model", name, self.served.names, param="model", code="model_not_found", status=404
            )

    async def _prepare(self, asked: Conversation, answers: Answers, hold: Callable[[int], None]) -> Prepared:
        deadline = answers.deadline
        characters, tokens = sum(map(len, asked.texts)), self.served.context
        if characters > CHARACTERS_PER_TOKEN * tokens:
            told = f"the messages have {characters:,} characters, more than any prompt of {tokens:,} tokens"
            raise invalid("messages", told, code="context_length_exceeded")
        found = await find_pictures(asked.messages, self.bounds, self._fetcher, hold)
        processor = self.served.processor
        opened = await asyncio.to_thread(open_pictures, asked.messages, found, self.bounds, processor)
        lane = int(sum(one.pixels for one in opened) > LARGE)

        def work() -> Prepared:
            try:
                pictures = read_pictures(opened, deadline)
                deadline.check()
                arguments = asked.chat_template_kwargs if isinstance(asked, ChatRequest) else None
                prepared = self.served.prepare(asked.messages, pictures, arguments, lane=lane)
            except ReweighError as error:
                raise problem_of(error, self.served.hidden, param="messages") from error
            check_prompt(self.served, prepared.prompt_tokens)
            return prepared

        prepared = await self._lanes[lane].run(work, answers.client)
        if lane:  # also under a load of small pictures that never ends
            await asyncio.to_thread(return_memory)
        return prepared

    async def models(self, _request: Request) -> Response:
        """``GET /v1/models``."""
        return JSONResponse({"object": "list", "data": [self._about()]})

    async def model(self, request: Request) -> Response:
        """``GET /v1/models/NAME``."""
        self._require_model(request.path_params["name"])
        return JSONResponse(self._about())

    def _about(self) -> dict[str, Any]:
        return {"id": self.served.name, "object": "model", "created": self._started, "owned_by": "reweigh"}

    async def reload(self) -> None:
        """Read the table again between two batches, or keep it; requests that already wait keep the old one."""
        try:
            await self.scheduler.run(self.served.reload)
        except (ReweighError, OSError) as error:
            told = " ".join(str(error).split())  # in one line, with the hint
            logger.error("the table could not be reloaded, the old one stays in use: %s", told)
            return
        self._facts = None
        self.metrics.build(self.served.summary())
        tell("reloaded", **self.served.summary())

    async def live(self, _request: Request) -> Response:
        """``GET /health/live``: whether the server's threads make progress; if not, only a restart helps."""
        stuck = self._busy_seconds() > STUCK * self.bounds.seconds
        return JSONResponse({"status": "stuck" if stuck else "ok"}, status_code=503 if stuck else 200)

    async def ready(self, _request: Request) -> Response:
        """``GET /health`` and ``GET /health/ready``: whether the server accepts requests now."""
        status = "ok"
        if self._busy_seconds() > self.bounds.seconds:
            status = "busy for longer than a request may take"
        elif not self.scheduler.takes_more():
            status = "queue full"
        return JSONResponse({"status": status}, status_code=200 if status == "ok" else 503)

    def _busy_seconds(self) -> float:
        """Return how long the model's thread, or one that prepares, has worked on one thing."""
        return max(self.scheduler.busy_seconds(), *(lane.busy_seconds() for lane in self._lanes))

    async def show_metrics(self, _request: Request) -> Response:
        """``GET /metrics``."""
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def facts(self, request: Request) -> Response:
        """``GET /inspect/facts``."""

        def work() -> dict[str, Any]:
            if self._facts is None:
                self._facts = inspect.facts(self.served, self.bounds, key_needed=self._key is not None)
            return self._facts

        with self._closing(self._answers(request)) as answers:
            return JSONResponse(self._facts or await self._on_model(answers, work))

    async def scene(self, request: Request) -> Response:
        """``GET /inspect/scene?number=N``."""
        number = request.query_params.get("number", "0")
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise invalid("number", "number must be a whole number, 0 or more")
        return JSONResponse(await asyncio.to_thread(inspect.scene, self.served, int(number)))

    def _question(
        self,
        kind: type[Asked],
        work: Callable[[Served, Asked, Prepared], T],
        report: Callable[[Served, Asked, T], dict[str, Any]] | None = None,
    ) -> Callable[..., Any]:
        """Make a handler that prepares a conversation and works on it, with the queue and time limit of any request.

        Args:
            work: Runs in the model's thread.
            report: Makes the answer from its result without the model, in the thread that prepares requests.
        """

        async def handle(request: Request) -> Response:
            async with self._arrival(request, partial(parse, kind)) as (asked, prepared, answers):
                pass
            with self._closing(answers):
                found = await self._on_model(answers, lambda: work(self.served, asked, prepared))

                def answer() -> Response:
                    return JSONResponse(found if report is None else report(self.served, asked, found))

                return await answers.within(self._lanes[0].run(answer, answers.client))

        return handle

    async def _on_model(self, answers: Answers, work: Callable[[], T]) -> T:
        """Run something in the scheduler's thread, unless its time is up before it starts."""

        def in_time() -> T:
            answers.deadline.check()
            return work()

        return await answers.within(self.scheduler.run(in_time, answers.client))

    @contextmanager
    def _closing(self, answers: Answers) -> Iterator[Answers]:
        """End a request that writes no rows; turn what refuses it into a problem."""
        try:
            yield answers
        except ReweighError as error:
            raise problem_of(error, self.served.hidden) from error
        finally:
            answers.close()

    def _answers(self, request: Request) -> Answers:
        client = "" if request.client is None else request.client.host
        return Answers(self.scheduler, Deadline(self.bounds.seconds), request.receive, client)

    def _client_left(self, _request: Request, _error: Any) -> Response:
        self.metrics.left.inc()
        return Response(status_code=CLIENT_LEFT)


class _Stream(StreamingResponse):
    """Server-sent events; ``close`` is called even if the client leaves before the first one."""

    def __init__(
        self, frames: AsyncIterator[str], headers: Mapping[str, str], close: Callable[[], None]
    ) -> None:
        super().__init__(frames, media_type="text/event-stream", headers=headers)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


def _refused(_request: Request, problem: Any) -> Response:
    return problem.response()  # type: ignore[no-any-return]


def _not_found(routes: frozenset[str], request: Request, error: Any) -> Response:
    words = {404: "there is nothing at this path", 405: "this path does not take that method"}
    status = error.status_code
    if status in (404, 405):  # static files answer for every path that is not a route
        status = 405 if request.url.path in routes or request.url.path == "/" else 404
    return Problem(status, words.get(status, str(error.detail)), code="not_found").response()
