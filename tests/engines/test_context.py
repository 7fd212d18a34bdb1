"""Which request is open: in its own thread or task alone, in any order of opening and closing, and never after it closed."""

from __future__ import annotations

import asyncio
import contextvars
import threading

import pytest

from reweigh.engines.base import Decoder, Request
from reweigh.engines.context import enter, leave, opened_on, suspended


@pytest.fixture
def requests():
    decoder = Decoder(None)
    return [Request(decoder) for _ in range(3)]


def innermost(model):
    opened = opened_on(model)
    return None if opened is None else opened.request


def test_requests_nest_and_models_are_apart(requests):
    one, two = object(), object()
    outer = enter(one, requests[0])
    inner = enter(two, requests[1])
    assert innermost(one) is requests[0]
    assert innermost(two) is requests[1]
    leave(inner)
    assert innermost(two) is None
    leave(outer)
    assert innermost(one) is None


def test_requests_may_close_in_the_order_they_opened(requests):
    """Two generators that are read in turn do so: neither closes the other's, neither brings one back."""
    model = object()
    first, second = enter(model, requests[0]), enter(model, requests[1])
    leave(first)
    assert innermost(model) is requests[1]
    leave(second)
    assert innermost(model) is None


def test_a_closed_request_is_closed_in_copies_of_its_context(requests):
    model = object()
    opened = enter(model, requests[0])
    copied = contextvars.copy_context()
    assert copied.run(innermost, model) is requests[0]
    leave(opened)
    assert copied.run(innermost, model) is None


def test_another_thread_sees_nothing(requests):
    model, found = object(), []
    opened = enter(model, requests[0])
    thread = threading.Thread(target=lambda: found.append(innermost(model)))
    thread.start()
    thread.join()
    leave(opened)
    assert found == [None]


def test_tasks_of_one_thread_keep_their_own(requests):
    model = object()

    async def task(request):
        seen = [innermost(model)]
        opened = enter(model, request)
        for _ in range(3):
            await asyncio.sleep(0)  # the other tasks open and close in between
            seen.append(innermost(model))
        leave(opened)
        await asyncio.sleep(0)
        return [*seen, innermost(model)]

    async def all_at_once():
        return await asyncio.gather(*(task(request) for request in requests))

    for request, seen in zip(requests, asyncio.run(all_at_once()), strict=True):
        assert seen == [None, request, request, request, None]


def test_pausing(requests):
    model = object()
    with suspended(model):
        assert opened_on(model) is None
    opened = enter(model, requests[0])
    with suspended(model):
        assert opened_on(model).suspended
        assert innermost(model) is requests[0]
    assert opened_on(model) is opened
    assert not opened.suspended
    leave(opened)
