"""vLLM's HTTP server: report outcomes in streamed chats, and answer refused requests with one clear error.

vLLM puts ``kv_transfer_params`` into whole answers, and from 0.33 on into a stream's last chunk; it calls every request
that ends in error an internal error.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from reweigh_vllm.plugin import KEY

RESULTS = "result_generator"
"""vLLM's argument for the engine's outputs of a request."""


@functools.cache
def watch() -> None:
    """Add outcomes to the chat streams of every server in this process, once."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat as Chat

    Chat.chat_completion_stream_generator = streamed(Chat.chat_completion_stream_generator)


def refusal(reason: str) -> Exception:
    """Make the error of a refused request: a 4xx, which clients do not retry, that every route can put into a stream."""
    from vllm.exceptions import GenerationError, VLLMUnprocessableEntityError

    class Refused(VLLMUnprocessableEntityError, GenerationError):
        """A request that could not be edited, and was to be refused then."""

        def __init__(self, message: str) -> None:
            VLLMUnprocessableEntityError.__init__(self, message)
            self.status_code = HTTPStatus.UNPROCESSABLE_ENTITY

    return Refused(f"reweigh could not edit this request: {reason}")


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
