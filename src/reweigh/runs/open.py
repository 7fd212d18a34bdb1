"""Opening a task: a benchmark by name, its records or a shard of them, its images, and what a record keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import find_benchmark
from reweigh.benchmarks.open import data_folder, image_folder, open_benchmark
from reweigh.errors import InputError
from reweigh.runs.task import Task
from reweigh.shards import Shard
from reweigh.text import escape_bytes


def open_task(
    name: str,
    data: Path | None = None,
    *,
    images: Path | None = None,
    options: Mapping[str, Any] | None = None,
    limit: int | None = None,
    seed: int = 42,
    shard: str = "1/1",
    drawings: Path | None = None,
) -> Task:
    """Open a benchmark and list its records.

    Args:
        name: The benchmark.
        data: Folder of its files; by default where ``reweigh data`` puts them.
        images: Folder of its images, if they are elsewhere.
        options: Its own options.
        limit: Only the first records.
        seed: Seed of the sample, where the benchmark samples.
        shard: Part of the records, as i/n.
        drawings: Folder for the images of a benchmark that draws them, if ``data`` names none.
    """
    benchmark = find_benchmark(name)
    if benchmark.answers_of is not None:
        raise InputError(
            f"{name} is a way to score the answers of {benchmark.answers_of}",
            hint=f"answer {benchmark.answers_of}, then reweigh eval score --judge {benchmark.judge_kind}",
        )
    folder = data_folder(benchmark, drawings if benchmark.draws_images and data is None else data)
    opened = open_benchmark(name, folder, **(options or {}))
    pictures = image_folder(benchmark, folder, images or opened.own_images)
    return Task(
        opened,
        Shard.parse(shard).of(opened.records(limit=limit, seed=seed)),
        pictures,
        {"name": name, "options": dict(options or {}), "limit": limit, "shard": shard},
        {name: escape_bytes(str(path.resolve())) for name, path in (("data", folder), ("images", pictures))},
    )
