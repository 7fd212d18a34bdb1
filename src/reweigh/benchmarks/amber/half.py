"""What AMBER's two halves share: the annotations, and leaving out the answers to the other half."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.benchmarks.amber.data import DATASET, Annotations, require_queries
from reweigh.benchmarks.base import Benchmark, Id, Item, Response, Summary


class Half(Benchmark):
    """One half of AMBER over the folder of its files; ``mixed`` leaves the other half's answers out."""

    dataset = DATASET
    half: ClassVar[str]
    other: ClassVar[str]

    def __init__(self, data_dir: str | Path, *, mixed: bool) -> None:
        super().__init__(data_dir)
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
        """The questions, in the official order."""
        return require_queries(self.data_dir, self._rows, self.half)[:limit]

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        """Score answers."""
        other = getattr(self._annotations, self.other) if self._mixed else {}
        mine = [response for response in responses if response.id not in other]
        return super().score(mine, ids=ids)

    def known_ids(self) -> Collection[Id]:
        """Ids of this half's annotations."""
        return self._rows.keys()
