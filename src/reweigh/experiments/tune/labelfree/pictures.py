"""Pictures without labels as a task, and the lexicons that find objects in what is said about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Benchmark, Record
from reweigh.benchmarks.bootstrap import Array
from reweigh.errors import InputError
from reweigh.experiments.tune.labelfree.study import Lexicon
from reweigh.images import list_images
from reweigh.runs.task import Task
from reweigh.text import DESCRIBE


class Pictures(Benchmark):
    """A folder of pictures to describe; it has no figures of its own."""

    name = "pictures"

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """One description of each picture, by file name."""
        return [
            Record(id=name, image=name, prompt=DESCRIBE, max_new_tokens=512)
            for name in (
                path.relative_to(self.data_dir).as_posix() for path in list_images(self.data_dir)[:limit]
            )
        ]

    @staticmethod
    def figures(counts: Mapping[str, Array]) -> Mapping[str, Array]:
        """None: there is nothing to score against."""
        return {}


def open_pictures(folder: Path, *, limit: int | None = None) -> Task:
    """The pictures of a folder as a task."""
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder", hint="--pictures wants a folder of images")
    bench = Pictures(folder)
    metadata: dict[str, Any] = {"name": bench.name, "options": {}, "limit": limit, "shard": "1/1"}
    return Task(bench, bench.records(limit=limit), folder, metadata, {"images": str(folder.resolve())})


def open_lexicon(name: str, data: Path | None = None) -> Lexicon:
    """Find objects in texts as a benchmark does: the embedded world's names, CHAIR's synonyms, a third party's."""
    from reweigh.benchmarks.open import open_benchmark

    return open_benchmark(name, data).objects
