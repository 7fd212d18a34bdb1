"""Many at once: nobody is lost or mixed up, 429 only beyond the queue, a client that leaves frees its row."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from functools import partial

import httpx
import openai
import pytest
from live import DESCRIBE, picture, user

from reweigh.engines.reader import Reader
from reweigh.serve.bounds import Bounds
from reweigh.serve.thread import SingleThread

MODEL = "reweigh-world"
SCENES = 8
BETAS = (0.0, 2.1)


def body(number, beta=2.1, **changes):
    told = {"reweigh": {"beta": beta, "evidence": True}}
    return {"model": MODEL, "messages": [user(picture(number))], "extra_body": told, **changes}


def ids(answer):
    return [token["token"] for token in answer.choices[0].reweigh["tokens"]]


async def streamed(client, content):
    """Token ids of a streamed answer."""
    found = []
    async for chunk in await client.chat.completions.create(**content, stream=True):
        for choice in chunk.choices:
            found += [
                token["token"] for token in (choice.model_extra or {}).get("reweigh", {}).get("tokens", [])
            ]
    return found


@pytest.fixture(scope="module")
def expected(reference):
    """``expected(scene, beta)``: what the library writes for them alone."""

    @functools.cache
    def tokens(number, beta):
        with reference.using(beta=beta):
            prompt = "Please describe this image in detail."
            return list(reference.answer([picture(number)], [prompt], max_new_tokens=512)[0].tokens)

    return tokens


@pytest.mark.slow
def test_three_hundred_at_once_get_their_own_answers(serving, expected):
    """Betas, lengths, images, streams and single answers mixed: each is what the library writes alone."""
    busy = serving(Bounds(queue=600))  # half of it for one client
    jobs = [(place % SCENES, BETAS[place % 3 > 0], 4 + place % 40, place % 2) for place in range(300)]

    async def ask(client, number, beta, length, stream):
        content = body(number, beta, max_tokens=length)
        if stream:
            return await streamed(client, content)
        return ids(await client.chat.completions.create(**content))

    async def all_of_them():
        limits = httpx.Limits(max_connections=300)
        async with busy.client_async(
            http_client=openai.DefaultAsyncHttpxClient(limits=limits), timeout=300
        ) as client:
            return await asyncio.gather(*(ask(client, *job) for job in jobs))

    answers = asyncio.run(all_of_them())
    for (number, beta, length, _), found in zip(jobs, answers, strict=True):
        assert found == expected(number, beta)[:length]
    text = httpx.get(f"{busy.url}/metrics").text
    assert 'status="200"} 300' in text
    assert "reweigh_waiting_rows 0" in text


def test_a_batch_mixes_betas_lengths_and_pictures(serving, expected):
    busy = serving()

    async def all_of_them():
        async with busy.client_async() as client:
            asked = [
                client.chat.completions.create(**body(number, beta, max_tokens=length))
                for number, beta, length in ((0, 0.0, 20), (1, 2.1, 5), (2, 2.1, 40), (3, 0.0, 1))
            ]
            plain = client.chat.completions.create(
                model=MODEL, messages=[user(text="Hello there, what is this?")], max_tokens=4
            )
            return await asyncio.gather(*asked, plain)

    answers = asyncio.run(all_of_them())
    wanted = [expected(0, 0.0)[:20], expected(1, 2.1)[:5], expected(2, 2.1)[:40], expected(3, 0.0)[:1]]
    assert [ids(answer) for answer in answers[:4]] == wanted
    assert answers[4].usage.completion_tokens <= 4
    batches = httpx.get(f"{busy.url}/metrics").text.partition("reweigh_batch_rows_count ")[2].split()[0]
    assert float(batches) < 5


def test_429_only_beyond_the_queue(serving):
    full = serving(Bounds(queue=8, batch=1))

    async def all_of_them():
        async with full.client_async() as client:
            asked = [client.chat.completions.create(**body(0, max_tokens=20)) for _ in range(12)]
            return await asyncio.gather(*asked, return_exceptions=True)

    answers = asyncio.run(all_of_them())
    refused = [answer for answer in answers if isinstance(answer, Exception)]
    assert all(isinstance(answer, openai.RateLimitError) for answer in refused)
    assert 1 <= len(refused) <= 8  # four wait, and those that ran meanwhile
    assert all(1 <= int(answer.response.headers["retry-after"]) <= 60 for answer in refused)
    assert refused[0].code == "queue_full"
    assert len({tuple(ids(answer)) for answer in answers if answer not in refused}) == 1
    with pytest.raises(openai.RateLimitError):  # more choices than can ever wait
        full.client().chat.completions.create(**body(0), n=5)


def test_a_client_that_leaves_frees_its_row(serving, monkeypatch):
    lone = serving(Bounds(batch=1))
    settings = lone.server.served.anatomy.language_model.generation_config
    monkeypatch.setattr(settings, "eos_token_id", None)  # the answer would end by itself
    client = lone.client()
    with client.chat.completions.create(**body(0, max_tokens=900), stream=True) as stream:
        for _, _chunk in zip(range(5), stream, strict=False):
            pass
    after = client.chat.completions.create(**body(1, max_tokens=2))
    assert after.usage.completion_tokens == 2
    with pytest.raises(openai.APITimeoutError):  # leaves while it waits for a whole answer
        lone.client(timeout=0.5).chat.completions.create(**body(0, max_tokens=900))
    assert client.chat.completions.create(**body(1, max_tokens=2)).usage.completion_tokens == 2
    text = httpx.get(f"{lone.url}/metrics").text
    assert "reweigh_left_total 2" in text
    written = float(text.partition('reweigh_tokens_total{kind="generated"} ')[2].split()[0])
    assert written < 1700  # two answers of 900 were not written to their end


def test_evidence_of_a_picture_is_measured_once(serving):
    fresh = serving()
    client = fresh.client()

    def counted():
        text = httpx.get(f"{fresh.url}/metrics").text
        return tuple(
            float(text.partition(f'reweigh_evidence_total{{source="{name}"}} ')[2].split()[0])
            for name in ("measured", "recalled")
        )

    client.chat.completions.create(**body(77, max_tokens=2))
    assert counted() == (1, 0)
    for text in ("What is this?", "Please tell me about all the things on the left side of this picture."):
        client.chat.completions.create(model=MODEL, messages=[user(picture(77), text=text)], max_tokens=2)
    assert counted() == (1, 2)
    asked = {"messages": [user(picture(78))]}
    told = httpx.post(f"{fresh.url}/inspect/measure", json=asked, timeout=60).json()
    assert (told["layers"], told["measured"]) == ([1, 2, 3], True)
    assert not httpx.post(f"{fresh.url}/inspect/measure", json=asked, timeout=60).json()["measured"]
    for layer in (1, 2, 3):
        extra = {"reweigh": {"layer": layer}}
        client.chat.completions.create(model=MODEL, **asked, max_tokens=2, extra_body=extra)
    assert counted() == (1, 5)


def test_nothing_is_measured_where_nothing_is_edited_or_shown(serving, reference, monkeypatch):
    """Alone, and in a batch with rows whose evidence is read."""
    read, real = [], Reader.read
    monkeypatch.setattr(Reader, "read", lambda self, states: read.append(len(states)) or real(self, states))
    fresh = serving()

    def bodies(number):
        asked = {"model": MODEL, "messages": [user(picture(number))], "max_tokens": 20}
        return [asked | {"reweigh": one} for one in ("off", {"beta": 0}, {"evidence": True}, "on")]

    async def ask(*asked):
        async with httpx.AsyncClient(timeout=60) as client:
            posted = [client.post(f"{fresh.url}/v1/chat/completions", json=one) for one in asked]
            return [answer.json() for answer in await asyncio.gather(*posted)]

    alone = asyncio.run(ask(*bodies(90)[:2]))
    assert read == []
    both = [asyncio.run(ask(one))[0] for one in bodies(91)]
    assert len(read) == 1, "measured once for two rows that read it"
    read.clear()
    together = asyncio.run(ask(*(one for number in (91, 92, 93) for one in bodies(number))))
    assert 2 <= len(read) <= 4, "two pictures whose evidence two rows read, perhaps at the same time"

    def texts(answers):
        return [one["choices"][0]["message"]["content"] for one in answers]

    assert texts(together)[:4] == texts(both)
    with reference.using(beta=0.0):
        expected = reference.answer([picture(90)], [DESCRIBE], max_new_tokens=20)[0].text
    assert texts(alone) == [expected, expected]


def test_rows_wait_in_order_and_only_like_ones_share_a_batch(world):
    """The row whose turn it is leads; rivals are decoded alone."""
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler
    from reweigh.serve.wire import Conversation

    scheduler = Scheduler(Bounds(batch=3), Metrics(), world.recall)
    messages = Conversation.model_validate({"messages": [user(picture(0))]}).messages
    prepared = world.prepare(messages, [picture(0)])
    sessions = [
        world.reweigh(),
        world.session("vcd", None),
        world.reweigh(),
        world.reweigh(),
        world.reweigh(1),
    ]
    sessions += [world.reweigh(), world.session("vcd", None)]
    rows = [Row(place, prepared, session, lambda piece: None) for place, session in enumerate(sessions)]
    for row in rows:
        scheduler.submit([row])
    rows[3].left = True
    taken = []
    while scheduler._waiting:
        taken.append([row.index for row in scheduler._take()])
    assert taken == [[0, 2, 5], [1], [4], [6]]


def test_short_work_waits_for_one_batch_only_and_clients_take_turns(world):
    """Eight requests of 16 choices, then one for a single answer, by the same client and by another one."""
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler
    from reweigh.serve.wire import Conversation

    messages = Conversation.model_validate({"messages": [user(text="Hello")]}).messages
    prepared = world.prepare(messages, [])
    scheduler = Scheduler(Bounds(batch=16, queue=512), Metrics(), world.recall)

    def submit(count, client="one"):
        rows = [Row(place, prepared, world.reweigh(), lambda piece: None) for place in range(count)]
        scheduler.submit(rows, client)
        return rows

    whole = [submit(16) for _ in range(8)]
    first = scheduler._take()
    assert [row.index for row in first] == [0] * 8 + [1] * 8
    (same,), (other,) = submit(1), submit(1, "two")
    many = [submit(1)[0] for _ in range(100)]
    second = scheduler._take()
    assert same in second
    assert second.index(other) < 2
    assert sum(row.client == "one" for row in second) == 15
    taken = [*first, *second]
    while scheduler._waiting:
        taken += scheduler._take()
    assert set(taken) == {row for rows in whole for row in rows} | {same, other, *many}
    assert taken.index(whole[0][5]) < taken.index(many[-1]), "what is long does not starve either"


def test_one_client_gets_half_of_the_queue_and_of_the_threads_turns(world):
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.problem import Problem
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler

    scheduler = Scheduler(Bounds(queue=5), Metrics(), world.recall)
    rows = [Row(place, None, world.reweigh(), lambda piece: None) for place in range(9)]
    scheduler.submit(rows[:3], "one")
    with pytest.raises(Problem, match="half of them"):
        scheduler.submit(rows[3:4], "one")
    scheduler.submit(rows[4:6], "two")
    assert not scheduler.takes_more()
    with pytest.raises(Problem, match="full"):
        scheduler.submit(rows[6:7], "three")

    done = []

    async def several():
        thread = SingleThread("test")
        async with asyncio.TaskGroup() as group:
            for client in ("one", "one", "one", "two"):
                group.create_task(thread.run(partial(done.append, client), client))
        thread.shutdown()

    asyncio.run(several())
    assert done == ["one", "two", "one", "one"]


def test_a_stopped_scheduler_finishes_what_waits(world):
    from reweigh.serve.monitor import Metrics
    from reweigh.serve.problem import Problem
    from reweigh.serve.row import Row
    from reweigh.serve.scheduler import Scheduler
    from reweigh.serve.wire import Conversation

    messages = Conversation.model_validate({"messages": [user(text="Hello")]}).messages
    prepared = world.prepare(messages, [])
    pieces = []
    rows = [Row(place, prepared, world.reweigh(), pieces.append, most=3) for place in range(5)]

    async def stopped():
        scheduler = Scheduler(Bounds(batch=2), Metrics(), world.recall)
        scheduler.submit(rows)
        scheduler.start()
        await scheduler.stop()
        with pytest.raises(Problem, match="stopping"):
            scheduler.submit(rows)

    asyncio.run(stopped())
    assert Counter(piece.index for piece in pieces if piece.ends) == Counter(range(5))
