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
from reweigh.serve.chat import Reply, make_rows
from reweigh.serve.fetch import Fetcher
from reweigh.serve.gate import Gate
from reweigh.serve.metrics import Metrics
from reweigh.serve.pictures import find_pictures, read_pictures
from reweigh.serve.prepare import Prepared
from reweigh.serve.problem import Problem, problem_of
from reweigh.serve.row import Piece, Row
from reweigh.serve.scheduler import Scheduler
from reweigh.serve.served import Served
from reweigh.serve.wire import (
    ChatRequest,
    CheckRequest,
    Conversation,
    HeatRequest,
    Message,
    parse,
    parse_chat,
)

T = TypeVar("T")

STATIC = Path(__file__).parent / "static"
FETCHES = 8
"""Conversations whose images are fetched or decoded from base64 at the same time."""
STUCK = 2.0
"""Multiples of a request's time after which a busy model thread counts as stuck."""
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
        app.add_middleware(Gate, metrics=self.metrics, key=self._key, hosts=self._hosts, paths=[*routes, "/"])
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
        with self.scheduler.arriving():
            asked = parse_chat(await read_body(request, self.bounds))
            self._check_model(asked)
            answers = Answers(self.scheduler, self.bounds.seconds, request.receive)
            try:
                prepared = await answers.within(self._prepare(asked.messages))
                made = partial(make_rows, self.served, self.bounds, asked, prepared, answers.send)
                rows = await answers.within(self._in_preparer(made))
                answers.submit(rows)
            except BaseException:
                await answers.close()
                raise
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

    def _check_model(self, asked: ChatRequest) -> None:
        self._require_model(asked.model)

    def _require_model(self, name: str) -> None:
        if name not in self.served.names:
            raise Problem(
                404,
                f"this server has no model {name[:80]!r}; it serves {self.served.name!r}",
                param="model",
                code="model_not_found",
            )

    async def _prepare(self, messages: Sequence[Message]) -> Prepared:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._fetching, find_pictures, messages, self.bounds, self._fetcher
        )

        def work() -> Prepared:
            try:
                return self.served.prepare(messages, read_pictures(found, self.bounds))
            except ReweighError as error:
                refused = problem_of(error, self.served.hidden)
                refused.param = "messages"
                raise refused from error

        return await self._in_preparer(work)

    async def _in_preparer(self, work: Callable[[], T]) -> T:
        """Run something in the one thread that prepares requests, so that only one request's pictures are in memory."""
        return await asyncio.get_running_loop().run_in_executor(self._preparing, work)

    def _note_for_log(self, request: Request, asked: ChatRequest, rows: Sequence[Row]) -> None:
        note = request.scope["state"]["note"]
        note |= {"decoder": rows[0].decoder, "n": len(rows), "prompt": rows[0].prepared.prompt_tokens}
        if self._log_prompts:
            words = [part.text for m in asked.messages for part in m.parts() if part.type == "text"]
            note["asked"] = repr(" | ".join(words))

    def _count(self, request: Request, reply: Reply) -> None:
        request.scope["state"]["note"]["new"] = reply.generated
        self.metrics.tokens(prompt=reply.prepared.prompt_tokens, generated=reply.generated)

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
        return await self._on_model(request, lambda: self._facts)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        return inspect.facts(self.served, self.bounds, key_needed=self._key is not None)

    async def scene(self, request: Request) -> Any:
        """``GET /inspect/scene?number=N``."""
        number = request.query_params.get("number", "0")
        if not number.isascii() or not number.isdigit() or len(number) > 9:
            raise Problem(400, "number must be a whole number from 0", param="number", code="invalid_value")
        return await asyncio.to_thread(inspect.scene, self.served, int(number))

    async def measure(self, request: Request) -> Any:
        """``POST /inspect/measure``."""
        asked = parse(Conversation, await read_body(request, self.bounds))
        return await self._about(request, asked, lambda prepared: inspect.measure_all(self.served, prepared))

    async def heat(self, request: Request) -> Any:
        """``POST /inspect/heat``."""
        asked = parse(HeatRequest, await read_body(request, self.bounds))

        def work(prepared: Prepared) -> dict[str, Any]:
            token = inspect.token_of(self.served, asked.word or "") if asked.token is None else asked.token
            return inspect.heat(self.served, prepared, token)

        return await self._about(request, asked, work)

    async def check(self, request: Request) -> Any:
        """``POST /inspect/check``."""
        asked = parse(CheckRequest, await read_body(request, self.bounds))
        return await self._about(
            request, asked, lambda prepared: inspect.check(self.served, prepared, asked.text, asked.layer)
        )

    async def _about(self, request: Request, asked: Conversation, work: Callable[[Prepared], T]) -> T:
        """Prepare a conversation and work on it, with the queue and time limit of any request."""
        answers = Answers(self.scheduler, self.bounds.seconds, request.receive)
        with self.scheduler.arriving():
            try:
                prepared = await answers.within(self._prepare(asked.messages))
            finally:
                await answers.close()
        return await self._on_model(request, lambda: work(prepared))

    async def _on_model(self, request: Request, work: Callable[[], T]) -> T:
        """Run something in the scheduler's thread, within bounds."""
        answers = Answers(self.scheduler, self.bounds.seconds, request.receive)
        try:
            return await answers.within(asyncio.wrap_future(self.scheduler.run(work)))
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
