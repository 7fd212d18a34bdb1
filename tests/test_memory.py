"""The bounded store: exact values, its bound, threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from reweigh.errors import InputError
from reweigh.memory import Memory


def test_it_is_bounded_and_drops_what_was_used_longest_ago() -> None:
    memory = Memory(1200)
    for name in "abc":
        memory.put(name, name.upper(), 400)
    memory.get("a")
    memory.put("d", "D", 400)
    assert [memory.get(name) for name in "abcd"] == ["A", None, "C", "D"]
    memory.put("d", "E", 400)  # replaces, does not add
    memory.put("large", "L", 4000)  # would not fit at all
    assert memory.bytes == 1200
    assert [memory.get(name) for name in ("d", "large")] == ["E", None]


def test_threads_share_it() -> None:
    memory = Memory(2000)

    def use(n: int) -> bool:
        found = memory.get(str(n % 7))
        if found is None:
            memory.put(str(n % 7), n % 7, 400)
        return found in (None, n % 7)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(200)))
    assert memory.bytes <= 2000


def test_a_negative_limit_is_refused() -> None:
    with pytest.raises(InputError, match="negative"):
        Memory(-1)
