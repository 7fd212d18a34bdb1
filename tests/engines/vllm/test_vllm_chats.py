"""What a chat over HTTP says of its edit, streamed and whole."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace as Plain

import pytest

from reweigh.engines.vllm.chats import Outcomes, current, reload, streamed, with_outcome
from reweigh.errors import MismatchError, UnsupportedError

EDITED = {"edited": True, "beta": 1.1}
LOST = {"edited": False, "reason": "gone"}


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


class App:
    """An ASGI application that sends given messages; before each, something may happen to the reply."""

    def __init__(self, messages, events=None):
        self.messages, self.events = messages, events or {}

    async def __call__(self, scope, receive, send):
        for number, message in enumerate(self.messages):
            self.events.get(number, lambda reply: None)(current())
            await send(message)


def served(app, path="/v1/chat/completions"):
    """What leaves the server, and how many of the application's messages had been sent by then."""
    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(Outcomes(app)({"type": "http", "path": path}, None, send))
    return sent


START = {"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]}


def piece(text, more=True):
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


def settle(told, refused=False):
    def event(reply):
        record = object()
        reply.expect(record)
        reply.hear(record, told, refused=refused)

    return event


STREAM = [START, piece("1"), piece("2"), piece("3", more=False)]
OUTCOME = {"edited": True, "beta": 1.1, "layer": 2}


def test_every_answer_says_in_a_header_what_was_done():
    sent = served(App(STREAM, {2: settle(OUTCOME)}))
    assert sent[0]["headers"] == [(b"a", b"b"), (b"x-reweigh", b"edited; beta=1.1; layer=2")]
    assert [one["body"] for one in sent[1:]] == [b"1", b"2", b"3"]
    assert served(App(STREAM)) == STREAM  # nothing was asked
    sent = served(App(STREAM, {2: settle({**OUTCOME, "table": "other"})}))
    assert sent[0]["headers"][-1] == (b"x-reweigh", b"edited; beta=1.1; layer=2; table=other")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize("late", [1, 3])
def test_a_refused_request_is_answered_with_the_reason_whatever_its_route_began(path, late):
    start, body = served(App(STREAM, {late: settle(LOST, refused=True)}), path)
    assert start["status"] == 422
    error = json.loads(body["body"])["error"]
    assert "gone" in error["message"]
    assert (error["type"] == "invalid_request_error") == (path == "/v1/messages")


def test_a_route_that_stumbles_over_a_refused_request_answers_with_the_reason():
    def fails(reply):
        settle(LOST, refused=True)(reply)
        raise RuntimeError("a stream that has begun")

    start, _ = served(App(STREAM, {2: fails}))
    assert start["status"] == 422

    def other(reply):
        raise RuntimeError("somebody else's")

    with pytest.raises(RuntimeError, match="else"):
        served(App(STREAM, {2: other}))


def test_a_stream_that_says_nothing_for_long_is_not_held_back_forever():
    many = [START, *(piece(str(number)) for number in range(20)), piece("", more=False)]
    assert served(App(many, {12: settle(LOST, refused=True)})) == many


def test_what_is_not_http_passes():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(Outcomes(app)({"type": "lifespan"}, None, None))
    assert seen == ["lifespan"]


@pytest.mark.parametrize(
    ("outcome", "status", "word"),
    [
        ({"table": {"changed": True}}, 200, "changed"),
        (MismatchError("another model", hint="restart"), 409, "restart"),
        (PermissionError("no entry"), 409, "stay as they are"),
        (UnsupportedError("2 API servers"), 501, "API servers"),
    ],
)
def test_new_tables_are_put_in_force_or_the_answer_says_why_not(outcome, status, word):
    pytest.importorskip("starlette")

    async def reload_async():
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    state = Plain(engine_client=Plain(reweigh=Plain(reload_async=reload_async)))
    answer = asyncio.run(reload(Plain(app=Plain(state=state))))
    assert answer.status_code == status
    body = json.loads(answer.body)
    assert word in json.dumps(body)
    assert ("error" in body) == (status != 200)
