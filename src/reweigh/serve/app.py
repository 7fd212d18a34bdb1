"""The routes of the server; docs/serve.md is their contract."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from reweigh.errors import ReweighError
from reweigh.serve import inspect
from reweigh.serve.answers import Answers, ClientLeft
from reweigh.serve.body import read_body
from reweigh.serve.bounds import Bounds
from reweigh.serve.chat import Reply, check_prompt, make_rows
from reweigh.serve.deadline import Deadline
from reweigh.serve.fetch import Fetcher
from reweigh.serve.gate import Gate
from reweigh.serve.logs import logger, tell
from reweigh.serve.metrics import Metrics
from reweigh.serve.parse import did_you_mean, parse, parse_chat, shortened
from reweigh.serve.pictures import find_pictures, read_pictures
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem, problem_of
from reweigh.serve.row import Piece, Row
from reweigh.serve.scheduler import Scheduler
from reweigh.serve.served import Served
from reweigh.serve.wire import ChatRequest, CheckRequest, Conversation, HeatRequest

T = TypeVar("T")
Asked = TypeVar("Asked", bound=Conversation)

STATIC = Path(__file__).parent / "static"
FOLDERS = ("/v1/models/", "/css/", "/js/")
"""Paths below these are counted together."""
FETCHES = 8
"""Conversations whose images are fetched or decoded from base64 at the same time."""
STUCK = 2.0
"""Multiples of a request's time after which a busy model thread counts as stuck."""
CHARACTERS_PER_TOKEN = 16
"""No text has more characters than so many for each of its tokens; longer ones are refused before they are tokenized."""
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
        self.metrics.build(served.summary())
        self._preparing = ThreadPoolExecutor(1, thread_name_prefix="reweigh-prepare")
        self._fetching = ThreadPoolExecutor(FETCHES, thread_name_prefix="reweigh-fetch")

    def app(self) -> FastAPI:
        """The ASGI application."""
        app = FastAPI(
            title="reweigh", docs_url=None, redoc_url=None, openapi_url=None, lifespan=self._lifespan
        )
        routes: dict[str, tuple[str, Callable[..., Any]]] = {
            "/v1/chat/completions": ("POST", self.chat),
            "/v1/models": ("GET", self.models),
            "/v1/models/{name:path}": ("GET", self.model),
            "/health": ("GET", self.ready),
            "/health/live": ("GET", self.live),
            "/health/ready": ("GET", self.ready),
            "/metrics": ("GET", self.show_metrics),
            "/inspect/facts": ("GET", self.facts),
            "/inspect/scene": ("GET", self.scene),
            "/inspect/measure": ("POST", self.measure),
            "/inspect/heat": ("POST", self.heat),
            "/inspect/check": ("POST", self.check),
        }
        for path, (method, handler) in routes.items():
            app.add_api_route(path, handler, methods=[method], response_model=None)
        app.mount("/", StaticFiles(directory=STATIC, html=True))
        app.add_exception_handler(Problem, _problem_response)
        app.add_exception_handler(HTTPException, partial(_http_response, frozenset(routes)))
        app.add_exception_handler(ClientLeft, self._client_left)
        app.add_exception_handler(ClientDisconnect, self._client_left)
        app.add_middleware(
            Gate, metrics=self.metrics, key=self._key, hosts=self._hosts, paths=[*routes, "/", *FOLDERS]
        )
        return app

    @asynccontextmanager
    async def _lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        self.scheduler.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self.scheduler.stop)
            self._preparing.shutdown()
            self._fetching.shutdown(cancel_futures=True)

    async def chat(self, request: Request) -> Response:
        """``POST /v1/chat/completions``."""
        begin = time.monotonic()
        async with self._arrival(request, self._parse_chat) as (asked, prepared, answers):
            made = partial(make_rows, self.served, self.bounds, asked, prepared, answers.send)
            rows = await answers.within(self._in_preparer(made))
            answers.submit(rows)
        reply = Reply(self.served, asked, rows)
        self._note_for_log(request, asked, rows)
        if asked.stream:
            return await self._stream(request, answers, reply, begin)
        try:
            whole = await reply.whole(answers)
        finally:
            await answers.close()
            self._count(request, reply)
        return JSONResponse(whole, headers={"x-reweigh": reply.outcome})

    @asynccontextmanager
    async def _arrival(
        self, request: Request, read: Callable[[bytes], Asked]
    ) -> AsyncIterator[tuple[Asked, Prepared, Answers]]:
        """A request that was read and prepared: what is asked, its inputs, and where its answers go.

        Until the block ends it counts among those that arrive, which are bounded in number and bytes.
        """
        deadline = Deadline(self.bounds.seconds)
        with self.scheduler.arriving() as hold:
            asked = read(await read_body(request, self.bounds, hold))
            answers = Answers(self.scheduler, deadline, request.receive)
            try:
                yield asked, await answers.within(self._prepare(asked, deadline)), answers
            except BaseException:
                await answers.close()
                raise

    async def _stream(self, request: Request, answers: Answers, reply: Reply, begin: float) -> Response:
        """Begin a stream once its first piece has arrived, so that earlier failures get their own status."""
        pieces = answers.pieces()
        try:
            first = await anext(pieces)
        except BaseException:
            await answers.close()
            raise
        self.metrics.first_token(time.monotonic() - begin)
        frames = self._frames(request, first, pieces, answers, reply)
        headers = {"X-Accel-Buffering": "no", "x-reweigh": reply.outcome}
        return StreamingResponse(frames, media_type="text/event-stream", headers=headers)

    async def _frames(
        self,
        request: Request,
        first: Piece,
        pieces: AsyncIterator[Piece],
        answers: Answers,
        reply: Reply,
    ) -> AsyncIterator[str]:
        try:
            async for frame in reply.frames(first, pieces):
                yield frame
        except (ClientLeft, asyncio.CancelledError, GeneratorExit):
            self.metrics.left()
            raise
        finally:
            await answers.close()
            self._count(request, reply)

    def _parse_chat(self, body: bytes) -> ChatRequest:
        asked = parse_chat(body)
        self._require_model(asked.model)
        return asked

    def _require_model(self, name: str) -> None:
        if name not in self.served.names:
            hint = did_you_mean(name, self.served.names)
            raise Problem(
                404,
                f"this server has no model {shortened(name)!r}; it serves {self.served.name!r}{hint}",
                param="model",
                code="model_not_found",
            )

    async def _prepare(self, asked: Conversation, deadline: Deadline) -> Prepared:
        if asked.characters > CHARACTERS_PER_TOKEN * self.bounds.prompt_tokens:
            raise Problem(
                400,
                f"the messages have {asked.characters:,} characters, more than any prompt of "
                f"{self.bounds.prompt_tokens:,} tokens",
                param="messages",
                code="context_length_exceeded",
            )
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._fetching, find_pictures, asked.messages, self.bounds, self._fetcher
        )

        def work() -> Prepared:
            try:
                pictures = read_pictures(found, self.bounds, deadline)
                deadline.check()
                prepared = self.served.prepare(asked.messages, pictures)
            except ReweighError as error:
                refused = problem_of(error, self.served.hidden)
                refused.param = "messages"
                raise refused from error
            check_prompt(self.served, self.bounds, prepared.prompt_tokens)
            return prepared

        return await self._in_preparer(work)

    async def _in_preparer(self, work: Callable[[], T]) -> T:
        """Run something in the one thread that prepares requests, so that only one request's pictures are in memory."""
        return await asyncio.get_running_loop().run_in_executor(self._preparing, work)

    def _note_for_log(self, request: Request, asked: ChatRequest, rows: Sequence[Row]) -> None:
        note = request.scope["state"]["note"]
        note |= {"decoder": rows[0].decoder, "n": len(rows), "prompt": rows[0].prepared.prompt_tokens}
        if self._log_prompts:
            words = [part.text for m in asked.messages for part in m.parts() if part.type == "text"]
            note["asked"] = " | ".join(words)

    def _count(self, request: Request, reply: Reply) -> None:
        request.scope["state"]["note"] |= {"new": reply.generated, "changed": reply.changed}
        self.metrics.tokens(prompt=reply.prepared.prompt_tokens, generated=reply.generated)
        self.metrics.answers(reply.decoder, len(reply), reply.changed)

    async def models(self) -> dict[str, Any]:
        """``GET /v1/models``."""
        return {"object": "list", "data": [self._model]}

    async def model(self, name: str) -> dict[str, Any]:
        """``GET /v1/models/NAME``."""
        self._require_model(name)
        return self._model

    @property
    def _model(self) -> dict[str, Any]:
        return {"id": self.served.name, "object": "model", "created": self._started, "owned_by": "reweigh"}

    @cached_property
    def _started(self) -> int:
        return int(time.time())

    async def live(self) -> Response:
        """``GET /health/live``: whether the model's thread still makes progress; if not, only a restart helps."""
        stuck = self.scheduler.busy_seconds() > STUCK * self.bounds.seconds
        return _status("stuck" if stuck else "ok", 503 if stuck else 200)

    async def ready(self) -> Response:
        """``GET /health`` and ``GET /health/ready``: whether the server accepts requests now."""
        if self.scheduler.busy_seconds() > self.bounds.seconds:
            return _status("busy beyond the time of a request", 503)
        if not self.scheduler.takes_more():
            return _status("queue full", 503)
        return _status("ok", 200)

    async def show_metrics(self) -> PlainTextResponse:
        """``GET /metrics``."""
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def facts(self, request: Request) -> Any:
        """``GET /inspect/facts``."""
        if self._facts is None:
            self._facts = await self._on_model(
                Answers(self.scheduler, Deadline(self.bounds.seconds), request.receive),
                lambda: inspect.facts(self.served, self.bounds, key_needed=self._key is not None),
            )
        return self._facts

    def reload(self) -> None:
        """Read the table again, between two batches; requests that wait keep the one they came with."""

        def work() -> None:
            try:
                self.served.reload()
            except ReweighError as error:
                logger.error("the table could not be reloaded, the old one stays in use: %s", error)
                return
            self._facts = None
            self.metrics.build(self.served.summary())
            tell("reloaded", **self.served.summary())

        self.scheduler.run(work)

    async def scene(self, request: Request) -> Any:
        """``GET /inspect/scene?number=N``."""
        number = request.query_params.get("number", "0")
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise Problem(400, "number must be a whole number from 0", param="number", code="invalid_value")
        return await asyncio.to_thread(inspect.scene, self.served, int(number))

    async def measure(self, request: Request) -> Any:
        """``POST /inspect/measure``."""
        return await self._about(
            request, Conversation, lambda _asked, prepared: inspect.measure_all(self.served, prepared)
        )

    async def heat(self, request: Request) -> Any:
        """``POST /inspect/heat``."""

        def work(asked: HeatRequest, prepared: Prepared) -> dict[str, Any]:
            token = inspect.token_of(self.served, asked.word or "") if asked.token is None else asked.token
            return inspect.heat(self.served, prepared, token)

        return await self._about(request, HeatRequest, work)

    async def check(self, request: Request) -> Any:
        """``POST /inspect/check``."""

        def work(asked: CheckRequest, prepared: Prepared) -> dict[str, Any]:
            return inspect.check(self.served, prepared, asked.text, asked.layer)

        return await self._about(request, CheckRequest, work)

    async def _about(self, request: Request, kind: type[Asked], work: Callable[[Asked, Prepared], T]) -> T:
        """Prepare a conversation and work on it, with the queue and time limit of any request."""
        async with self._arrival(request, partial(parse, kind)) as (asked, prepared, answers):
            pass
        return await self._on_model(answers, lambda: work(asked, prepared))

    async def _on_model(self, answers: Answers, work: Callable[[], T]) -> T:
        """Run something in the scheduler's thread, unless its time is over before it begins."""

        def in_time() -> T:
            answers.deadline.check()
            return work()

        try:
            return await answers.within(asyncio.wrap_future(self.scheduler.run(in_time)))
        except ReweighError as error:
            raise problem_of(error, self.served.hidden) from error
        finally:
            await answers.close()

    def _client_left(self, _request: Request, _error: Any) -> Response:
        self.metrics.left()
        return Response(status_code=CLIENT_LEFT)


def _status(text: str, code: int) -> Response:
    return JSONResponse({"status": text}, status_code=code)


def _problem_response(_request: Request, problem: Any) -> Response:
    return JSONResponse(problem.body(), status_code=problem.status, headers=problem.headers)


def _http_response(routes: frozenset[str], request: Request, error: Any) -> Response:
    words = {404: "there is nothing at this path", 405: "this path does not take that method"}
    # static files answer for every path that is not a route
    wrong_method = request.url.path in routes or request.url.path == "/"
    status = error.status_code
    if status in (404, 405):
        status = 405 if wrong_method else 404
    return _problem_response(request, Problem(status, words.get(status, str(error.detail)), code="not_found"))
