"""Reading and building ahead: threads change when things happen, never what comes out or in which order."""

from __future__ import annotations

import signal
import threading
import time
import weakref
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.calibration import ahead as loop
from reweigh.calibration.ahead import build_ahead

PATIENCE = 120
"""Seconds after which a thread that should have come is taken for lost."""


@pytest.fixture(autouse=True)
def no_thread_outlives_its_test():
    yield
    assert living() == []


def living():
    """Threads of this module; a server that other tests share may have its own."""
    return [
        thread.name
        for thread in threading.enumerate()
        if thread.name.startswith(("reweigh-read", "reweigh-build"))
    ]


def readers(number):
    patch = pytest.MonkeyPatch()
    patch.setattr(loop, "READERS", number)
    return closing(Undo(patch))


class Undo:
    def __init__(self, patch):
        self.close = patch.undo


@given(
    sizes=st.lists(st.integers(0, 5), max_size=6),
    pauses=st.lists(st.integers(0, 3), min_size=30, max_size=30),
    number=st.integers(1, 8),
)
@settings(max_examples=30)
def test_any_number_of_readers_gives_what_a_plain_loop_gives(sizes, pauses, number):
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    batches = [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]

    def read(item):
        time.sleep(pauses[item] / 1000)
        return -item

    with readers(number):
        assert list(build_ahead(iter(batches), read, tuple)) == [
            tuple(-item for item in batch) for batch in batches
        ]
    assert living() == []


def test_order_is_kept_although_the_last_is_read_first():
    gates = [threading.Event() for _ in range(4)]
    finished = []

    def read(item):
        assert gates[item].wait(PATIENCE)
        finished.append(item)
        if item > 0:
            gates[item - 1].set()
        return item

    gates[3].set()
    with readers(4):
        assert list(build_ahead([[0, 1, 2, 3]], read, list)) == [[0, 1, 2, 3]]
    assert finished == [3, 2, 1, 0]


def test_items_of_a_batch_are_read_at_the_same_time():
    together = threading.Barrier(3)

    def read(item):
        together.wait(PATIENCE)  # passes only when three are here
        return item

    with readers(3):
        assert list(build_ahead([[0, 1, 2]], read, sum)) == [3]


def test_look_ahead_is_one_batch():
    begun, built, asked = [], [], []

    def batches():
        for number in range(6):
            asked.append(number)
            yield [(number, row) for row in range(3)]

    def build(items):
        built.append(items[0][0])
        return items

    with readers(8), closing(build_ahead(batches(), lambda item: begun.append(item) or item, build)) as taken:
        assert asked == []
        for number in range(6):
            next(taken)
            ahead = min(number + 2, 6)
            wait_until(lambda done=ahead: len(built) >= done)
            time.sleep(0.01)  # and no more than that
            assert asked == built == list(range(ahead))
            assert sorted(begun) == [(batch, row) for batch in asked for row in range(3)]


def wait_until(true):
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_what_was_read_is_held_for_two_batches_at_most():
    class Picture:
        pass

    held = weakref.WeakSet()
    most = []

    def read(_item):
        picture = Picture()
        held.add(picture)
        return picture

    def build(pictures):
        time.sleep(0.02)  # the batch after this one is read by now
        most.append(len(held))
        return len(pictures)

    with readers(4), closing(build_ahead([range(20)] * 8, read, build)) as taken:
        for count in taken:
            assert count == 20
            time.sleep(0.005)
    assert max(most) <= 2 * 20 + 4  # a reader lets go of its last one when it runs again
    assert len(held) == 0


@pytest.mark.parametrize("stage", ["read", "build"])
def test_an_error_surfaces_in_its_own_turn(stage):
    def read(item):
        if stage == "read" and item in (5, 4):
            time.sleep(0.02 if item == 4 else 0)  # the second of the batch fails first
            raise KeyError(item)
        return item

    def build(items):
        if stage == "build" and 4 in items:
            raise KeyError(4)
        return items

    got = []
    with readers(4), pytest.raises(KeyError, match="4"):
        take(build_ahead([[0, 1], [2, 3], [4, 5], [6, 7]], read, build), got, pause=0.05)
    assert got == [[0, 1], [2, 3]]
    assert living() == []


def take(batches, got, pause=0):
    """Add what comes to ``got``, with time enough in between for an error of the next batch to have happened."""
    with closing(batches):
        for batch in batches:
            time.sleep(pause)
            got.append(batch)


def test_stopping_drops_what_has_not_begun():
    begun = []

    def read(item):
        begun.append(item)
        time.sleep(0.02 if item else 0)
        return item

    with readers(2), closing(build_ahead([[0], list(range(1, 100)), [100]], read, list)) as taken:
        assert next(taken) == [0]
    assert living() == []
    assert len(begun) < 99


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs a signal sent to one thread")
def test_an_interrupt_while_waiting_ends_every_thread():
    begun = []

    def read(item):
        begun.append(item)
        if item == 2:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        time.sleep(0.01 if item >= 2 else 0)
        return item

    got = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job may ignore it
    try:
        with readers(1), pytest.raises(KeyboardInterrupt):
            take(build_ahead([[0, 1], list(range(2, 200))], read, list), got)
    finally:
        signal.signal(signal.SIGINT, before)
    assert got in ([], [[0, 1]])
    assert living() == []
    assert len(begun) < 199


def test_nothing_to_do_starts_nothing():
    assert list(build_ahead([], int, list)) == []
    build_ahead([[1]], int, list).close()
    assert living() == []
