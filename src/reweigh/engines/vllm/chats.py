"""The HTTP server: report outcomes in a header of every answer, refuse with one clear error, and reload tables.

vLLM puts ``kv_transfer_params`` into whole answers only, calls every request that ends in error an internal error, and
begins a stream before the outcome is known. So an answer is held back until then, which is until its first token.
"""

from __future__ import annotations

import contextvars
import functools
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from reweigh.engines.vllm.plugin import KEY, after
from reweigh.errors import ReweighError, UnsupportedError

RESULTS = "result_generator"
"""vLLM's argument for the engine's outputs of a request."""
MIDDLEWARE = "reweigh.engines.vllm.chats.Outcomes"
HEADER = b"x-reweigh"
HELD = 8
"""Messages to hold back at most; streams begin with one or two without content."""
UNPROCESSABLE = HTTPStatus.UNPROCESSABLE_ENTITY
ANTHROPIC = "/v1/messages"
RELOAD = "/v1/reweigh/reload"
"""Below /v1, which vLLM's ``--api-key`` guards."""

Message = dict[str, Any]
Send = Callable[[Message], Awaitable[None]]
_reply: contextvars.ContextVar[Reply | None] = contextvars.ContextVar("reply", default=None)


class Reply:
    """One HTTP answer, held back until the outcome of the requests that it waits for is known.

    Args:
        path: The route that was asked.
        send: Sends a message to the client.

    Attributes:
        arguments: The request's ``vllm_xargs``, which vLLM's beam search drops.
        told: The outcome of its first request, or of the first one that was not edited.
        refused: Whether a request that was not edited ends in an error.
    """

    def __init__(self, path: str, send: Send) -> None:
        self.arguments: Mapping[str, Any] = {}
        self.told: dict[str, Any] | None = None
        self.refused = False
        self._path, self._send = path, send
        self._open: set[int] = set()
        self._held: list[Message] | None = []
        self._is_replaced = False

    @property
    def is_settled(self) -> bool:
        """Whether requests were sent and all of them have an outcome."""
        return self.told is not None and not self._open

    def expect(self, record: Any) -> None:
        """Wait for the outcome of a request."""
        self._open.add(id(record))

    def hear(self, record: Any, told: dict[str, Any], *, refused: bool) -> None:
        """Note an outcome."""
        self._open.discard(id(record))
        if self.told is None or (self.told["edited"] and not told["edited"]):
            self.told, self.refused = told, refused and not told["edited"]

    async def send(self, message: Message) -> None:
        """Pass a message on, now or when the outcome is known."""
        if self._is_replaced:
            return
        if self._held is None:
            await self._send(message)
            return
        self._held.append(message)
        is_last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if self.is_settled or is_last or len(self._held) > HELD:
            await self._release()

    async def refuses(self) -> bool:
        """Tell whether the answer was refused; refuse it now if it is still held back."""
        if self._held is not None and self.refused:
            await self._release()
        return self._is_replaced

    async def _release(self) -> None:
        held, self._held = self._held or [], None
        if self.told is not None:
            if self.refused:
                self._is_replaced = True
                held = refused_answer(self._path, self.told["reason"])
            if held[0]["type"] == "http.response.start":
                own = (HEADER, header(self.told))
                held[0] = {**held[0], "headers": [*held[0].get("headers", []), own]}
        for message in held:
            await self._send(message)


def header(told: Mapping[str, Any]) -> bytes:
    """Return an outcome in a line, as ``reweigh serve`` writes it."""
    if not told["edited"]:
        return f"unedited; {told['reason']}".encode("latin-1", "replace")
    named = f"; table={told['table']}" if "table" in told else ""
    return f"edited; beta={told['beta']:g}; layer={told['layer']}{named}".encode()


def current() -> Reply | None:
    """Return the HTTP answer that this task makes."""
    return _reply.get()


@functools.cache
def watch(entry: Any) -> None:
    """Watch the answers of every server in this process, once; ``entry`` is vLLM's module that builds servers."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat as Chat
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    def note_arguments(request: Any, _: Any) -> None:
        reply = current()
        if reply is not None:
            reply.arguments = dict(request.vllm_xargs or {})

    for kind in (ChatCompletionRequest, CompletionRequest):
        after(kind, "to_beam_search_params", note_arguments)
    Chat.chat_completion_stream_generator = streamed(Chat.chat_completion_stream_generator)
    build = entry.build_app

    @functools.wraps(build)
    def build_app(args: Any, *more: Any, **kwargs: Any) -> Any:
        args.middleware = [*args.middleware, MIDDLEWARE]
        app = build(args, *more, **kwargs)
        # a route, because a middleware of ours would answer before the API key is checked
        app.add_route(RELOAD, reload, methods=["POST"])
        return app

    entry.build_app = build_app


async def reload(request: Any) -> Any:
    """Answer a request to reload the tables."""
    from starlette.responses import JSONResponse

    try:
        return JSONResponse(await request.app.state.engine_client.reweigh.reload_async())
    except (ReweighError, OSError) as error:
        unsupported = isinstance(error, UnsupportedError)
        status = HTTPStatus.NOT_IMPLEMENTED if unsupported else HTTPStatus.CONFLICT
        message = f"the current tables stay as they are: {error}"
        return JSONResponse(_error(message, type(error).__name__, status), status)


def _error(message: str, kind: str, status: HTTPStatus) -> dict[str, Any]:
    """Return the body of an error in OpenAI's form."""
    return {"error": {"message": message, "type": kind, "param": None, "code": int(status)}}


def refusal(reason: str) -> Exception:
    """Make the error of a refused request: a 4xx, which clients do not retry, that every route can put into a stream."""
    from vllm.exceptions import GenerationError, VLLMUnprocessableEntityError

    class Refused(VLLMUnprocessableEntityError, GenerationError):
        """A request that could not be edited, and was to be refused then."""

        def __init__(self, message: str) -> None:
            VLLMUnprocessableEntityError.__init__(self, message)
            self.status_code = UNPROCESSABLE

    return Refused(f"reweigh could not edit this request: {reason}")


class Outcomes:
    """Middleware that holds an answer back until its outcome is known, then adds the header or refuses."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        reply = Reply(scope["path"], send)
        token = _reply.set(reply)
        try:
            await self.app(scope, receive, reply.send)
        except Exception:  # some routes fail on an error in a stream that they have begun
            if not await reply.refuses():
                raise
        finally:
            _reply.reset(token)


def refused_answer(path: str, reason: str) -> list[Message]:
    """Return the messages of a refused answer, in the form that clients of the path expect."""
    text = f"reweigh could not edit this request: {reason}"
    body = _error(text, "UnprocessableEntityError", UNPROCESSABLE)
    if path.startswith(ANTHROPIC):
        body = {"type": "error", "error": {"type": "invalid_request_error", "message": text}}
    data = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
    return [
        {"type": "http.response.start", "status": int(UNPROCESSABLE), "headers": headers},
        {"type": "http.response.body", "body": data},
    ]


def streamed(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a stream: its first chunk carries the outcome, and a later one if the outcome changes."""

    @functools.wraps(original)
    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
        heard: dict[str, Any] = {}
        said = None
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.arguments[RESULTS] = _listen(bound.arguments[RESULTS], heard)
        async with aclosing(original(*bound.args, **bound.kwargs)) as events:
            async for event in events:
                told = heard.get(KEY)
                if told is not None and (told["edited"] is not said or told.get("tokens")):
                    event, said = with_outcome(event, told), told["edited"]
                    heard.pop(KEY)
                yield event

    return stream


async def _listen(results: Any, heard: dict[str, Any]) -> AsyncIterator[Any]:
    async with aclosing(results):
        async for result in results:
            told = (result.kv_transfer_params or {}).get(KEY)
            if told is not None:
                heard[KEY] = told
            yield result


def with_outcome(event: str, told: dict[str, Any]) -> str:
    """Add an outcome to a chunk of a stream; return other events unchanged."""
    head, data = event[:6], event[6:].strip()
    if head != "data: " or not data.startswith("{"):
        return event
    chunk = json.loads(data)
    chunk["kv_transfer_params"] = {**(chunk.get("kv_transfer_params") or {}), KEY: told}
    return f"data: {json.dumps(chunk)}\n\n"
