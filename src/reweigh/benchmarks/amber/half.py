"""What AMBER's two halves share: the annotations, and telling the answers of one half from those of the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.benchmarks.amber.data import Annotations, require_queries
from reweigh.benchmarks.base import Id, Item, Response, Summary, check_responses


class Half(ABC):
    """One half of AMBER over the folder of its files; ``mixed`` leaves the other half's answers out."""

    name: ClassVar[str]
    half: ClassVar[str]
    other: ClassVar[str]

    def __init__(self, data_dir: str | Path, *, mixed: bool) -> None:
        self.data_dir = Path(data_dir)
        self._mixed = mixed

    @cached_property
    def _annotations(self) -> Annotations:
        return Annotations.read(self.data_dir)

    @property
    def _rows(self) -> Mapping[int, Mapping[str, Any]]:
        """This half's annotations by id."""
        rows: Mapping[int, Mapping[str, Any]] = getattr(self._annotations, self.half)
        return rows

    def _queries(self, limit: int | None) -> list[Mapping[str, Any]]:
        """What is asked, in the official order."""
        return require_queries(self.data_dir, self._rows, self.half)[:limit]

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Score answers."""
        other = getattr(self._annotations, self.other) if self._mixed else {}
        mine = [response for response in responses if response.id not in other]
        items = [self._item(response) for response in check_responses(mine, known=self._rows, ids=ids)]
        return items, self.summarise(items)

    @abstractmethod
    def summarise(self, items: Sequence[Item]) -> Summary:
        """Compute the figures of items, for example those of all shards."""

    @abstractmethod
    def _item(self, response: Response) -> Item:
        """The counts of one answer."""
