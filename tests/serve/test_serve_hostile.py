"""Requests that are meant to harm: each is refused with a short answer in OpenAI's form, and nobody else waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import math
import socket
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest
from live import data_url, picture, user

from reweigh.errors import InputError
from reweigh.serve.app import Server
from reweigh.serve.bounds import Bounds
from reweigh.serve.scheduler import BODIES

MODEL = "reweigh-world"
JSON = {"Content-Type": "application/json"}
LONG = "x" * 1_000_000
SMALL = data_url(picture(0).resize((8, 8)))
THIN = data_url(picture(0).resize((2, 2_000)))
WIDE = data_url(picture(0).resize((2_000, 2)))


def connect(running):
    """A raw connection; a read that takes a minute is a failure."""
    return socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), timeout=60)


def read_all(sock):
    """What a connection gives until it is closed."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while part := sock.recv(1 << 16):
            found += part
    return found


def head(path, length):
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def image(url):
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def image_of(**asked):
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": SMALL, **asked}}]}


def chat(**changes):
    return {"model": MODEL, "messages": [user(text="Hi")], "max_tokens": 2, **changes}


HOSTILE = {
    "no JSON": b"{",
    "not an object": b"[]",
    "a number": b"1",
    "empty": b"",
    "not UTF-8": b'{"model": "\xff"}',
    "many fields": json.dumps(chat(**{f"f{place}": 1 for place in range(50_000)})).encode(),
    "many fields of ours": json.dumps(chat(reweigh={f"f{place}": 1 for place in range(50_000)})).encode(),
    "many betas": json.dumps(chat(reweigh={"beta": [1] * 2_000_000})).encode(),
    "lone surrogate": b'{"model": "\\ud800", "messages": [{"role": "user", "content": "x"}]}',
    "deep": b"[" * 100_000,
    "deep in a field": json.dumps(chat())[:-1].encode() + b', "metadata": ' + b"[" * 100_000,
    "NaN": json.dumps(chat(temperature=math.nan)).encode(),
    "infinite": json.dumps(chat(reweigh={"beta": math.inf})).encode(),
    "huge number": json.dumps(chat()).replace("2}", "1" * 5000 + "}").encode(),
    "no model": {"messages": [user(text="Hi")]},
    "no messages": {"model": MODEL},
    "long model": chat(model=LONG),
    "long field": chat(**{LONG: 1}),
    "long field of ours": chat(reweigh={LONG: 1}),
    "long decoder": chat(reweigh={"decoder": LONG}),
    "long stop": chat(stop=LONG),
    "many stops": chat(stop=["a"] * 5),
    "empty stop": chat(stop=""),
    "stop of another kind": chat(stop={}),
    "stop of 0": chat(stop=0),
    "no turns": chat(messages=[]),
    "many turns": chat(messages=[{"role": "user", "content": ""}] * 200_000),
    "many parts": chat(messages=[{"role": "user", "content": [{"type": "text", "text": ""}] * 200_000}]),
    "long text": chat(messages=[user(text=LONG)]),
    "long prompt": chat(messages=[user(text="word " * 50_000)]),
    "long role": chat(messages=[{"role": LONG, "content": "x"}]),
    "long part type": chat(messages=[{"role": "user", "content": [{"type": LONG, "text": "x"}]}]),
    "unknown part field": chat(
        messages=[{"role": "user", "content": [{"type": "text", "text": "x", "a": 1}]}]
    ),
    "tool calls": chat(messages=[{"role": "assistant", "content": "x", "tool_calls": [{}]}]),
    "content of null": chat(messages=[{"role": "user", "content": None}]),
    "image token": chat(messages=[user(text="<image>")]),
    "many images": chat(messages=[image(SMALL)] * 9),
    "thin image": chat(messages=[image(THIN)]),
    "wide image": chat(messages=[image(WIDE)]),
    "file": chat(messages=[image("file:///etc/passwd")]),
    "http": chat(messages=[image("http://127.0.0.1:1/")]),
    "no base64": chat(messages=[image("data:image/png;base64,!!!!")]),
    "no image": chat(messages=[image("data:image/png;base64,AAAA")]),
    "no data URL": chat(messages=[image("data:image/png,xx")]),
    "long URL": chat(messages=[image("data:image/png;base64," + LONG[:-1])]),
    "svg": chat(messages=[image("data:image/svg+xml;base64,PHN2Zy8+")]),
    "n of 0": chat(n=0),
    "n of 17": chat(n=17),
    "n of 10**30": chat(n=10**30),
    "no tokens": chat(max_tokens=0),
    "negative temperature": chat(temperature=-1),
    "hot": chat(temperature=3),
    "top_p": chat(top_p=0),
    "seed": chat(seed=2**64),
    "top_logprobs": chat(top_logprobs=21, logprobs=True),
    "top_logprobs alone": chat(top_logprobs=2),
    "negative beta": chat(reweigh={"beta": -1}),
    "huge beta": chat(reweigh={"beta": 1e39}),
    "two betas": chat(reweigh={"beta": [1, 2]}),
    "beta of a rival": chat(reweigh={"decoder": "vcd", "beta": 1}),
    "layer 99": chat(reweigh={"layer": 99}),
    "layer -99": chat(reweigh={"layer": -99}),
    "layer of a rival": chat(reweigh={"decoder": "vcd", "layer": 1}),
    "unknown decoder": chat(reweigh={"decoder": "../../etc"}),
    "table": chat(reweigh={"table": "../../etc"}),
    "vLLM's names": chat(vllm_xargs={"reweigh": "off"}),
    "unknown switch": chat(reweigh="perhaps"),
    "long trace": chat(n=16, max_tokens=900, reweigh={"trace": True}),
    "tools": chat(tools=[{}]),
    "penalty": chat(frequency_penalty=1),
    "bias": chat(logit_bias={"1": 100}),
    "JSON format": chat(response_format={"type": "json_object"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_chat_is_refused_in_few_words(house, name):
    sent = HOSTILE[name]
    content = sent if isinstance(sent, bytes) else json.dumps(sent)
    answer = httpx.post(f"{house.url}/v1/chat/completions", content=content, headers=JSON, timeout=60)
    assert answer.status_code in (400, 404, 413, 422), answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert len(answer.content) < 1000
    assert "pydantic" not in answer.text
    assert "Input should" not in answer.text


DIGITS = 10**4_000


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        *(
            ("/v1/chat/completions", {name: DIGITS})
            for name in ("n", "top_k", "seed", "top_logprobs", "stop")
        ),
        *(("/v1/chat/completions", {"reweigh": {name: DIGITS}}) for name in ("layer", "beta")),
        *(("/inspect/heat", {name: DIGITS}) for name in ("token", "word")),
        *(("/inspect/words", {"tokens": [1], name: [DIGITS]}) for name in ("tokens", "said")),
        ("/inspect/check", {"text": "a", "layer": DIGITS}),
        *(
            ("/v1/chat/completions", {"messages": [image_of(**{name: DIGITS})]})
            for name in ("min_pixels", "max_pixels")
        ),
    ],
)
def test_thousands_of_digits_are_not_repeated(house, path, changes):
    asked = {"messages": [user(picture(0))]}
    if path.startswith("/v1"):
        asked = chat(**asked)
    answer = httpx.post(house.url + path, json=asked | changes, timeout=60)
    assert answer.status_code == 400
    assert len(answer.content) < 600


QUESTIONS = {
    "long prompt": {"messages": [user(text="word " * 50_000)]},
    "long text": {"messages": [user(text=LONG)]},
    "no picture": {"messages": [user(text="no picture")]},
    "long after a picture": {"messages": [user(picture(0), text="word " * 3_000)]},
    "messages of another kind": {"messages": 1},
    "long word": {"text": LONG, "word": LONG},
    "text of another kind": {"text": 1, "word": 1},
    "no such place": {"layer": 99, "token": 10**9},
}


@pytest.mark.parametrize("path", ["measure", "heat", "check"])
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_hostile_question_of_the_page_is_refused_too(house, path, name):
    asked = {"messages": [user(picture(0))], "text": "a dog", "word": "dog", **QUESTIONS[name]}
    answer = httpx.post(f"{house.url}/inspect/{path}", json=asked, timeout=60)
    ignored = path == "measure" and "messages" not in QUESTIONS[name]
    assert answer.status_code == (200 if ignored else 400), answer.text
    assert len(answer.content) < 1000


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temprature": 1}, "unknown field 'temprature' (did you mean temperature"),
        ({"reweigh": {"bta": 1}}, "unknown field 'bta' (did you mean beta"),
        ({"reweigh": {"decoder": "vdc"}}, "did you mean vcd"),
        ({"reweigh": {"decoder": "vdc"}}, "known: base, beam, "),
        ({"model": "reweigh-wrld"}, "did you mean reweigh-world"),
        ({"messages": [{"role": "usr", "content": ""}]}, "messages.0.role: should be 'system'"),
        ({"messages": [{"role": "user"}]}, "messages.0.content: this field is required"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text: this"),
        ({"messages": [image(1)]}, "messages.0.content.0.image_url.url: should be a valid string"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 1001}]},
            "messages.0.content: List should have at most 1000 items",
        ),
        ({"temperature": 9}, "temperature: should be less than or equal to 2"),
        ({"max_tokens": "many"}, "max_tokens: should be a valid integer"),
    ],
)
def test_an_error_names_the_field_and_what_to_write(house, changes, words):
    answer = httpx.post(f"{house.url}/v1/chat/completions", json=chat(**changes), timeout=60)
    assert words in answer.json()["error"]["message"]


def test_bodies_of_many_values_are_not_even_parsed(house, monkeypatch):
    """Reading a million fields would stall every other request for a minute."""
    from reweigh.serve import app

    parsed = []
    monkeypatch.setattr(app, "parse", lambda kind, body: parsed.append(len(body)))
    sent = b'{"reweigh": {' + b'"a":1,' * 1_000_000
    answer = httpx.post(f"{house.url}/v1/chat/completions", content=sent, headers=JSON, timeout=60)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "body_too_large")
    assert parsed == []


def test_unfinished_bodies_take_no_place_in_the_queue(serving):
    small = serving(Bounds(queue=2))
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            for path in ("/inspect/measure", "/inspect/heat", "/v1/chat/completions"):
                stack.enter_context(connect(small)).sendall(head(path, 900) + b" " * 100)
        _until(lambda: small.server.scheduler._held.total() == 900)
        answer = httpx.post(f"{small.url}/v1/chat/completions", json=chat(), timeout=60)
        assert answer.status_code == 200


def test_requests_being_prepared_fill_the_queue_and_health_reports_it(serving, world, monkeypatch):
    go_on, real = threading.Event(), world.prepare
    monkeypatch.setattr(world, "prepare", lambda *given, **named: go_on.wait(60) and real(*given, **named))
    small = serving(Bounds(queue=2))

    def ask(client):
        headers = {"X-Forwarded-For": client}
        return httpx.post(f"{small.url}/v1/chat/completions", json=chat(), headers=headers, timeout=60)

    with ThreadPoolExecutor() as pool:
        try:
            first = pool.submit(ask, "192.0.2.1")
            _until(lambda: small.server.scheduler._arriving.total() == 1)
            assert ask("192.0.2.1").status_code == 429
            assert httpx.get(f"{small.url}/health").status_code == 200
            second = pool.submit(ask, "192.0.2.2")
            _until(lambda: small.server.scheduler._arriving.total() == 2)
            health = httpx.get(f"{small.url}/health")
            assert (health.status_code, health.json()["status"]) == (503, "queue full")
            assert ask("192.0.2.3").json()["error"]["code"] == "queue_full"
        finally:
            go_on.set()
        assert [one.result().status_code for one in (first, second)] == [200, 200]
    assert httpx.get(f"{small.url}/health").status_code == 200


def test_bytes_of_bodies_are_bounded_together_and_for_each_client(serving):
    full = serving(Bounds(body_bytes=1000))

    def send(client):
        sent = head("/inspect/check", 1000)[:-2] + f"X-Forwarded-For: {client}\r\n\r\n".encode()
        stack.enter_context(connect(full)).sendall(sent + b" " * 999)

    def status(client):
        headers = {**JSON, "X-Forwarded-For": client}
        return httpx.post(f"{full.url}/inspect/check", content=b" " * 100, headers=headers).status_code

    with contextlib.ExitStack() as stack:
        for _ in range(BODIES // 2):
            send("192.0.2.1")
        _until(lambda: full.server.scheduler._held.total() == BODIES // 2 * 999)
        assert (status("192.0.2.1"), status("192.0.2.2")) == (429, 400)
        for _ in range(BODIES // 2):
            send("192.0.2.2")
        _until(lambda: full.server.scheduler._held.total() == BODIES * 999)
        assert status("192.0.2.3") == 429
    _until(lambda: full.server.scheduler._held.total() == 0)
    assert httpx.post(f"{full.url}/inspect/check", content=b" " * 100, headers=JSON).status_code == 400


def _until(true):
    """Wait for something another thread does; a minute is a failure."""
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it never happened")


def test_questions_of_the_page_and_chats_take_turns(world):
    """The model works on what has waited longest."""
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler
    from reweigh.serve.wire import Conversation

    messages = Conversation.model_validate({"messages": [user(text="Hello")]}).messages
    prepared = world.prepare(messages, [])
    done = []
    rows = [
        Row(place, prepared, world.reweigh(), lambda piece: piece.ends and done.append("row"), most=1)
        for place in range(2)
    ]

    async def both():
        scheduler = Scheduler(Bounds(batch=1), Metrics(), world.recall)

        async def ask(place):
            await scheduler.run(lambda: done.append(f"task {place}"))

        scheduler.submit(rows)
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(0))
            await asyncio.sleep(0)
            scheduler.start()
            await asyncio.sleep(0)
            for place in (1, 2):
                group.create_task(ask(place))
        await scheduler.stop()

    asyncio.run(both())
    assert done == ["task 0", "row", "task 1", "row", "task 2"]


def test_a_question_that_is_given_up_leaves_the_model_to_others(world):
    """Whether it waits for the model, has just been told that it is its turn, or is at work."""
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler
    from reweigh.serve.wire import Conversation

    messages = Conversation.model_validate({"messages": [user(text="Hello")]}).messages
    pieces, worked = [], []
    row = Row(0, world.prepare(messages, []), world.reweigh(), pieces.append, most=1)

    async def give_up():
        metrics = Metrics()
        scheduler = Scheduler(Bounds(queue=3), metrics, world.recall)
        scheduler.start()
        begun, release = threading.Event(), threading.Event()

        def long():
            begun.set()
            release.wait(60)

        at_work = asyncio.create_task(scheduler.run(long))
        await asyncio.to_thread(begun.wait, 60)
        waiting = asyncio.create_task(scheduler.run(lambda: worked.append("waiting")))
        told = asyncio.create_task(scheduler.run(lambda: worked.append("told")))
        await asyncio.sleep(0)
        waiting.cancel()
        at_work.add_done_callback(lambda _: told.cancel())
        at_work.cancel()
        assert await asyncio.gather(at_work, waiting, told, return_exceptions=True) != [None] * 3
        scheduler.submit([row])
        release.set()
        assert await asyncio.wait_for(scheduler.run(lambda: "answered"), 60) == "answered"
        await asyncio.wait_for(scheduler.stop(), 60)
        assert "reweigh_waiting_rows 0" in metrics.text()
        assert "reweigh_running_rows 0" in metrics.text()

    asyncio.run(give_up())
    assert [piece.finish for piece in pieces if piece.ends] == ["length"]
    assert not worked


class Panic(BaseException):
    """What Rust code raises when it fails: not an ``Exception``."""


def test_a_panic_in_the_models_thread_ends_one_answer_and_not_the_server(serving, monkeypatch):
    from reweigh.serve import scheduler

    decode, left = scheduler.decode, [1]

    def fail_once(*given):
        if left:
            left.pop()
            raise Panic
        decode(*given)

    monkeypatch.setattr(scheduler, "decode", fail_once)
    found = serving(Bounds(seconds=20))
    answers = [httpx.post(f"{found.url}/v1/chat/completions", json=chat(), timeout=90) for _ in range(2)]
    assert [one.status_code for one in answers] == [500, 200]
    assert "reweigh_running_rows 0.0" in httpx.get(f"{found.url}/metrics").text


def test_a_panic_while_a_request_is_prepared_is_answered_like_any_failure(serving, world, monkeypatch):
    def fail(*given):
        raise Panic

    monkeypatch.setattr(world, "prepare", fail)
    found = httpx.post(f"{serving().url}/v1/chat/completions", json=chat(), timeout=90)
    assert (found.status_code, found.json()["error"]["code"]) == (500, "internal_error")


def test_a_thread_keeps_nothing_of_work_that_was_given_up():
    """Bodies of clients that leave would pile up in memory while a picture is decoded."""
    from reweigh.serve.thread import SingleThread

    class Body:
        """Something large."""

    async def give_up():
        thread, release, worked = SingleThread("test"), threading.Event(), []
        at_work = asyncio.create_task(thread.run(lambda: release.wait(60)))
        await asyncio.sleep(0)
        bodies = [Body() for _ in range(3)]
        known = [weakref.ref(body) for body in bodies]
        waiting = [asyncio.create_task(thread.run(partial(worked.append, body))) for body in bodies]
        await asyncio.sleep(0)
        for task in (at_work, *waiting):
            task.cancel()
        await asyncio.wait([at_work, *waiting])
        assert thread.free.locked()  # what has begun goes on
        del bodies, waiting, task
        gc.collect()
        assert [body() for body in known] == [None] * 3
        release.set()
        assert await thread.run(lambda: "next") == "next"
        assert not worked
        assert not thread.free.locked()
        thread.shutdown()

    asyncio.run(give_up())


def post(body):
    """The ASGI scope of a chat, and the message with its body."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }
    return scope, {"type": "http.request", "body": json.dumps(body).encode()}


def test_a_second_stop_says_so_to_waiting_clients_and_fails_nothing(world, monkeypatch):
    """The loop then cancels all of its tasks."""
    monkeypatch.setattr(world.anatomy.language_model.generation_config, "eos_token_id", None)
    app = Server(world).app()
    scope, message = post(chat(max_tokens=900))
    sent, begun = [], asyncio.Event()

    async def receive():
        if not begun.is_set():
            begun.set()
            return message
        return await asyncio.Event().wait()

    async def send(part):
        sent.append(part)

    async def live():
        async with app.router.lifespan_context(app):
            await asyncio.Event().wait()

    async def stop_twice():
        tasks = [asyncio.create_task(live()), asyncio.create_task(app(scope, receive, send))]
        await begun.wait()
        await asyncio.sleep(0.3)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        assert await asyncio.gather(*tasks) == [None, None]

    asyncio.run(stop_twice())
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["code"] == "stopping"


def test_a_stream_whose_client_leaves_before_its_first_byte_is_not_decoded_further(world, monkeypatch):
    monkeypatch.setattr(world.anatomy.language_model.generation_config, "eos_token_id", None)
    server = Server(world)
    app = server.app()
    scope, message = post(chat(stream=True, max_tokens=900))
    asked = 0

    async def receive():
        nonlocal asked
        asked += 1
        if asked == 1:
            return message
        if asked == 2:  # the server waits for its first token meanwhile
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message):
        await asyncio.sleep(0)  # a connection whose buffer is full

    passes = []
    handle = world.model.register_forward_hook(lambda *_: passes.append(1))

    async def leave():
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)

    try:
        asyncio.run(leave())
    finally:
        handle.remove()
    assert asked >= 3
    assert len(passes) < 450
    assert "reweigh_left_total 1.0" in server.metrics.text()


def test_rows_without_clients_do_not_fill_the_queue(world):
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler

    metrics = Metrics()
    scheduler = Scheduler(Bounds(queue=2), metrics, world.recall)
    rows = [Row(place, None, world.reweigh(), lambda piece: None) for place in range(2)]
    scheduler.submit(rows[:1], "one")
    scheduler.submit(rows[1:], "two")
    assert not scheduler.takes_more()
    rows[0].left = True
    assert scheduler.takes_more()
    assert "reweigh_waiting_rows 1.0" in metrics.text()


@pytest.mark.parametrize("name", ["code", "opera", "beam", "reweigh"])
def test_work_that_nobody_waits_for_ends_at_the_next_pass(world, name):
    """Also before the first token: CODE writes a description, OPERA searches."""
    from reweigh.serve.batch import decode
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.wire import Conversation

    messages = Conversation.model_validate({"messages": [user(picture(0))]}).messages
    prepared = world.prepare(messages, [picture(0)])
    row = Row(0, prepared, world.session(name, None), lambda piece: None, most=200)
    passes = []

    def leave(*_):
        passes.append(1)
        row.left = len(passes) > 3

    handle = world.model.register_forward_hook(leave)
    try:
        decode([row], world.recall, Metrics())
    finally:
        handle.remove()
    assert len(passes) == 4


def test_a_picture_is_not_read_when_the_time_is_over(serving, world, monkeypatch):
    from reweigh.serve import app

    read = []
    monkeypatch.setattr(world, "prepare", lambda *_: read.append(1))
    real = app.read_pictures

    def late(opened, deadline):
        deadline._ends = 0
        return real(opened, deadline)

    monkeypatch.setattr(app, "read_pictures", late)
    asked = {"model": MODEL, "messages": [user(picture(0))]}
    answer = httpx.post(f"{serving().url}/v1/chat/completions", json=asked, timeout=60)
    assert (answer.status_code, read) == (504, [])


def test_limits_have_names_and_kinds():
    assert Bounds.of({"seconds": 5, "queue": 3}) == Bounds(seconds=5, queue=3)
    with pytest.raises(InputError, match="seconds"):
        Bounds.of({"secnds": 5})
    for value in (True, "5", 5.5, math.inf, 0):
        with pytest.raises(InputError, match="queue"):
            Bounds.of({"queue": value})
    with pytest.raises(InputError, match="seconds"):
        Bounds.of({"seconds": math.inf})
