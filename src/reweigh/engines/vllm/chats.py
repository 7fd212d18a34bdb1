"""Chats over HTTP: a streamed answer says what became of its request, and a refused request why it was refused.

vLLM puts ``kv_transfer_params`` into whole answers only, and calls every request that ends in error an internal error.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from reweigh.engines.vllm.config import KEY

RESULTS = "result_generator"
"""The argument in which vLLM hands on what the engine says of a request."""


@functools.cache
def watch() -> None:
    """Watch the chats of every server of this process; once."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat as Chat

    Chat.chat_completion_stream_generator = streamed(Chat.chat_completion_stream_generator)
    Chat.chat_completion_full_generator = whole(Chat.chat_completion_full_generator)


def streamed(original: Callable[..., Any]) -> Callable[..., Any]:
    """A stream whose first chunk carries the outcome; a later one too if the outcome changes."""

    @functools.wraps(original)
    async def stream(*args: Any, **kwargs: Any) -> AsyncIterator[str]:
        heard: dict[str, Any] = {}
        said = None
        bound = _listening(original, heard, *args, **kwargs)
        async with aclosing(original(*bound.args, **bound.kwargs)) as events:
            async for event in events:
                told = heard.get(KEY)
                if told is not None and told["edited"] is not said:
                    event, said = with_outcome(event, told), told["edited"]
                yield event

    return stream


def whole(original: Callable[..., Any]) -> Callable[..., Any]:
    """A whole answer, which carries its outcome already; a refused request is answered with the reason."""

    @functools.wraps(original)
    async def answer(*args: Any, **kwargs: Any) -> Any:
        bound = _listening(original, {}, *args, **kwargs)
        return await original(*bound.args, **bound.kwargs)

    return answer


def _listening(original: Callable[..., Any], heard: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
    """The arguments of a call, with results that are listened to."""
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.arguments[RESULTS] = _listen(bound.arguments[RESULTS], heard)
    return bound


async def _listen(results: Any, heard: dict[str, Any]) -> AsyncIterator[Any]:
    from vllm.exceptions import GenerationError

    async with aclosing(results):
        async for result in results:
            told = (result.kv_transfer_params or {}).get(KEY)
            if told is not None:
                heard[KEY] = told
                if not told["edited"] and any(one.finish_reason == "error" for one in result.outputs):
                    raise GenerationError(f"reweigh could not edit this request: {told['reason']}")
            yield result


def with_outcome(event: str, told: dict[str, Any]) -> str:
    """A chunk of a stream with an outcome in it; any other event as it is."""
    head, data = event[:6], event[6:].strip()
    if head != "data: " or not data.startswith("{"):
        return event
    chunk = json.loads(data)
    chunk["kv_transfer_params"] = {**(chunk.get("kv_transfer_params") or {}), KEY: told}
    return f"data: {json.dumps(chunk)}\n\n"
