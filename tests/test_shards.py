"""Parts of work: together they are the whole, each is about as large as the others, and batches stay whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.shards import Shard


@given(st.integers(0, 30), st.integers(1, 7))
def test_shards_are_the_whole(count: int, parts: int) -> None:
    shards = [Shard(i + 1, parts).of(range(count)) for i in range(parts)]
    assert sorted(item for shard in shards for item in shard) == list(range(count))
    assert max(map(len, shards)) - min(map(len, shards)) <= 1


@given(st.integers(0, 40), st.integers(1, 7), st.integers(1, 5))
def test_a_shard_cuts_the_batches_of_the_whole(count: int, parts: int, size: int) -> None:
    def cut(items: list[int]) -> list[list[int]]:
        return [items[start : start + size] for start in range(0, len(items), size)]

    shards = [cut(Shard(i + 1, parts).of_batches(range(count), size)) for i in range(parts)]
    assert sorted(batch for shard in shards for batch in shard) == cut(list(range(count)))


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/2", "1/2/3", ""])
def test_wrong_shards_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="shard"):
        Shard.parse(text)


def test_a_shard_is_written_as_it_is_read() -> None:
    assert str(Shard.parse("2/3")) == "2/3"
