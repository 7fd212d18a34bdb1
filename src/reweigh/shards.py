"""Part i of n: split work among several machines so that all parts together are the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from reweigh.errors import InputError

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` of ``count``, counted from 1."""

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise InputError(
                f"shard {self} is not one of {self.count}", hint="give e.g. 1/4, 2/4, 3/4 or 4/4"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``."""
        index, slash, count = text.partition("/")
        if not (slash and index.strip().isdecimal() and count.strip().isdecimal()):
            raise InputError(f"shard {text!r} is not of the form i/n", hint="give 1/4 for the first of four")
        return cls(int(index), int(count))

    def of(self, items: Sequence[Item]) -> list[Item]:
        """Return the items of this part: every ``count``-th, so that parts are similar.

        Examples:
            >>> Shard(2, 3).of("abcdefgh")
            ['b', 'e', 'h']
        """
        return list(items[self.index - 1 :: self.count])

    def of_batches(self, items: Sequence[Item], size: int) -> list[Item]:
        """Return the items of this part in whole batches of ``size``, cut as for all items together.

        Examples:
            >>> Shard(2, 2).of_batches("abcdefgh", 2)
            ['c', 'd', 'g', 'h']
        """
        starts = self.of(range(0, len(items), size))
        return [item for start in starts for item in items[start : start + size]]
