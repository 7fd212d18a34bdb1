"""Which run is open: in its own thread or task alone, one on a model, and never after it was left."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from contextlib import contextmanager

import pytest

from reweigh.engines.base import Decoder
from reweigh.engines.run import Run, active, opened, opening, suspended
from reweigh.errors import ReweighError, UnsupportedError


@contextmanager
def entered(model, run):
    """Open a run as engines do, who count its uses."""
    run.uses += 1
    try:
        with opening(model, run):
            yield run
    finally:
        run.uses -= 1


@pytest.fixture
def runs():
    decoder = Decoder(None)
    return [Run(decoder=decoder, layers=frozenset()) for _ in range(3)]


def test_models_are_apart_and_blocks_of_one_do_not_nest(runs):
    one, two = object(), object()
    with entered(one, runs[0]):
        with entered(two, runs[1]):
            assert (active(one), active(two)) == (runs[0], runs[1])
            with pytest.raises(UnsupportedError, match="do not nest"), entered(one, runs[2]):
                pass
        assert (active(one), active(two)) == (runs[0], None)
    assert active(one) is None


def test_a_run_that_was_left_is_closed_in_copies_of_its_context(runs):
    model = object()
    with entered(model, runs[0]):
        copied = contextvars.copy_context()
        assert copied.run(active, model) is runs[0]
    assert copied.run(active, model) is None


def test_another_thread_sees_nothing(runs):
    model, found = object(), []
    with entered(model, runs[0]):
        thread = threading.Thread(target=lambda: found.append(active(model)))
        thread.start()
        thread.join()
    assert found == [None]


def test_tasks_of_one_thread_keep_their_own(runs):
    model = object()

    async def task(run):
        seen = [active(model)]
        with entered(model, run):
            for _ in range(3):
                await asyncio.sleep(0)  # the other tasks open and close in between
                seen.append(active(model))
        await asyncio.sleep(0)
        return [*seen, active(model)]

    async def all_at_once():
        return await asyncio.gather(*(task(run) for run in runs))

    for run, seen in zip(runs, asyncio.run(all_at_once()), strict=True):
        assert seen == [None, run, run, run, None]


def test_a_block_that_is_left_elsewhere_is_refused_and_closed(runs):
    model = object()
    block = entered(model, runs[0])
    copied = contextvars.copy_context()
    copied.run(block.__enter__)
    with pytest.raises(ReweighError, match="another thread or task"):
        block.__exit__(None, None, None)
    assert copied.run(active, model) is None


def test_suspended(runs):
    model = object()
    with suspended(model):
        assert opened(model) is None
    with entered(model, runs[0]):
        with suspended(model):
            assert (active(model), opened(model)) == (None, runs[0])
            with entered(model, runs[1]):  # what a decoder measures beside its passes
                assert active(model) is runs[1]
            assert (active(model), opened(model)) == (None, runs[0])
        assert active(model) is runs[0]
