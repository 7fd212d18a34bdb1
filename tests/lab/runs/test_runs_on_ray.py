"""Answers of several workers, in whatever order they come: the file of a run is that of one machine, also after a stop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.engines.answer import Answer
from reweigh.lab.runs.model import ask_workers
from reweigh.lab.runs.record import RESPONSES
from reweigh.lab.runs.run import Batch
from reweigh.lab.runs.task import Runs, Task
from shuffled import Shuffled
from toy_benchmark import Toy


def ask(batch: Batch) -> list[Answer]:
    return [
        Answer(f"{record.id} {batch.seed} {picture.size}")
        for record, picture in zip(batch.records, batch.pictures, strict=True)
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    from checkpoints import picture

    images = tmp_path_factory.mktemp("images")
    bench = Toy(images)
    records = bench.records()
    for name in {record.image for record in records}:
        picture(1).save(images / name)
    return Runs(Task(bench, records, images, {"name": "toy"}, {}), {"id": "m"}, batch_size=2)


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 4), kept=st.integers(0, 5))
def test_any_order_gives_the_file_of_one_machine(runs, tmp_path_factory, seed, workers, kept):
    folder = tmp_path_factory.mktemp("run")
    runs.answer(ask, folder / "alone", {})
    expected = (folder / "alone" / RESPONSES).read_bytes()
    runs.open(folder / "ray", {})
    begun = b"".join(expected.splitlines(keepends=True)[:kept])
    if begun:
        (folder / "ray" / RESPONSES).write_bytes(begun)
    crew = Shuffled(lambda task: ask(task[0]), workers, seed)
    new = runs.answer(ask_workers(crew, runs, {folder / "ray": {}}), folder / "ray", {})
    assert (folder / "ray" / RESPONSES).read_bytes() == expected
    assert new == len(runs.task.records) - kept
    assert set(crew.given) == {start for start in range(0, len(runs.task.records), 2) if start + 2 > kept}
