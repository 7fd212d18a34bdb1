"""Answer a task with a function instead of a model, into a run folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from reweigh.engines.answer import Answer
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.study import Answered, Arm, Batch, Opened, Study
from toy_benchmark import Toy

Ask = Callable[[Batch], "list[Answer] | Answered"]


def arm(name: str, ask: Ask, decoding: Mapping[str, Any] | None = None) -> Arm:
    """An arm that answers with a function, without notes unless the function gives some."""

    def whole(batch: Batch) -> Answered:
        found = ask(batch)
        return found if isinstance(found, Answered) else Answered(found)

    return Arm(name, lambda _: Opened({"decoder": name, **(decoding or {})}, whole))


def answer(runs: Runs, ask: Ask, folder: Path, decoding: Mapping[str, Any] | None = None, **more: Any) -> int:
    """Answer what is missing in a run folder; return the number of new answers."""
    study = Study([runs], [arm("base", ask, decoding)], folder, flat=True, **more)
    study.answer(runs, study.arms)
    return study.answered


def toy_runs(images: Path, *, limit: int | None = None, batch_size: int = 2, **more: Any) -> Runs:
    """The toy benchmark over pictures that are drawn here."""
    images.mkdir(exist_ok=True)
    bench = Toy(images)
    records = bench.records(limit=limit)
    for record in records:
        Image.new("RGB", (40, 30), (20 * int(record.id), 100, 0)).save(images / record.image)
    about = {"name": "toy", "options": {}, "limit": limit}
    places = {"data": str(images), "images": str(images)}
    return Runs(Task(bench, records, images, about, places), {"id": "m"}, batch_size, **more)
