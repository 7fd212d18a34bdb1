"""What a chat over HTTP says of its edit, streamed and whole."""

from __future__ import annotations

import asyncio
import json
import sys
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest

from reweigh.engines.vllm.chats import streamed, whole, with_outcome

EDITED = {"edited": True, "beta": 1.1}
LOST = {"edited": False, "reason": "gone"}


class Refusal(Exception):
    """As vLLM's error of a request that could not be generated."""


@pytest.fixture(autouse=True)
def beside_vllm(monkeypatch):
    known = ModuleType("vllm.exceptions")
    known.GenerationError = Refusal
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.exceptions", known)


def result(told=None, finish_reason=None):
    params = None if told is None else {"reweigh": told}
    return Plain(kv_transfer_params=params, outputs=[Plain(finish_reason=finish_reason)])


class Server:
    """Streams a chunk for each result, as vLLM does, and notes whether its results were closed."""

    closed = False

    async def results(self, given):
        try:
            for one in given:
                yield one
        finally:
            self.closed = True

    async def stream(self, request, result_generator, model="m"):
        async for _ in result_generator:
            yield f"data: {json.dumps({'model': model, 'choices': []})}\n\n"
        yield "data: [DONE]\n\n"

    async def answer(self, request, result_generator):
        return [one async for one in result_generator]


def stream_of(*given):
    server = Server()

    async def collect():
        return [
            event async for event in streamed(Server.stream)(server, "r", server.results(given), model="x")
        ]

    events = asyncio.run(collect())
    assert server.closed
    assert events[-1] == "data: [DONE]\n\n"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events[:-1]]
    assert all(chunk["model"] == "x" for chunk in chunks)
    return [chunk.get("kv_transfer_params") for chunk in chunks]


def test_the_first_chunk_carries_the_outcome():
    assert stream_of(result(EDITED), result(EDITED), result(EDITED)) == [{"reweigh": EDITED}, None, None]


def test_an_outcome_that_changes_is_reported_again():
    assert stream_of(result(EDITED), result(LOST), result(LOST)) == [
        {"reweigh": EDITED},
        {"reweigh": LOST},
        None,
    ]


def test_a_chat_that_was_not_to_be_edited_streams_as_it_was():
    assert stream_of(result(), result()) == [None, None]


def test_other_events_are_left_alone():
    assert with_outcome("data: [DONE]\n\n", EDITED) == "data: [DONE]\n\n"
    assert with_outcome(": ping\n\n", EDITED) == ": ping\n\n"
    kept = json.loads(with_outcome('data: {"kv_transfer_params": {"other": 1}}\n\n', EDITED)[6:])
    assert kept == {"kv_transfer_params": {"other": 1, "reweigh": EDITED}}


def test_a_refused_request_is_answered_with_the_reason():
    server = Server()
    refused = [result(LOST, "error")]
    with pytest.raises(Refusal, match="gone"):
        asyncio.run(whole(Server.answer)(server, "r", server.results(refused)))
    with pytest.raises(Refusal, match="gone"):
        stream_of(*refused)
    told = [result(LOST, "stop"), result(EDITED, "length"), result(None, "error")]
    assert asyncio.run(whole(Server.answer)(server, "r", server.results(told))) == told
