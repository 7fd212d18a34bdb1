"""The one loop: arms in turns, resumed, scored; a finished run's answers are read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reweigh.experiments.experiment import Arm, Experiment, OpenArm
from reweigh.files.artifacts import read_jsonl
from reweigh.runs import run as run_module
from reweigh.runs.run import Answered, Batch
from reweigh.runs.task import Runs, Task
from reweigh.runtime.answer import Answer
from toy_benchmark import Toy


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    images = tmp_path / "images"
    images.mkdir()
    bench = Toy(images)
    records = bench.records(limit=5)
    for record in records:
        Image.new("RGB", (4, 4)).save(images / record.image)
    about = {"name": "toy", "options": {}, "limit": 5, "shard": "1/1"}
    return Runs(Task(bench, records, images, about, {}), {"id": "m"}, batch_size=2)


def arms(asked: list[tuple[str, int]]) -> list[Arm]:
    """Two arms that note which batches they were asked."""

    def arm(name: str, text: str) -> Arm:
        def ask(batch: Batch) -> Answered:
            asked.append((name, batch.start))
            return Answered([Answer(text) for _ in batch.records], {"size": len(batch.records)})

        return Arm(name, name, lambda: OpenArm({"decoder": name}, ask), "notes.jsonl")

    return [arm("base", "a dog and a bus"), arm("other", "a dog")]


def test_arms_take_turns_in_an_order_that_rotates(runs: Runs, tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []
    made = Experiment(runs, arms(asked), tmp_path / "out", rotate=True)
    frame = made.run("base")
    assert asked == [("base", 0), ("other", 0), ("other", 2), ("base", 2), ("base", 4), ("other", 4)]
    assert frame.distinct("arm") == ["base", "other"]
    assert set(frame.against("base").distinct("arm")) == {"other"}
    assert [row["size"] for row in made.notes(made.arms[0])] == [2, 2, 1]
    assert made.texts(made.arms[1]) == ["a dog"] * 5


def test_answers_of_a_finished_experiment_are_read_once(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Experiment(runs, arms([]), tmp_path / "out").run("base")
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
    read: list[Path] = []
    original = run_module.read_sealed_rows

    def counted(path: Path, **options: Any) -> Any:
        read.append(Path(path))
        return original(path, **options)

    monkeypatch.setattr(run_module, "read_sealed_rows", counted)
    monkeypatch.setattr("reweigh.runs.score.read_sealed_rows", counted)
    asked: list[tuple[str, int]] = []
    again = Experiment(runs, arms(asked), tmp_path / "out")
    assert again.run("base") == first
    assert again.texts(again.arms[0]) == [
        row["response"] for row in read_jsonl(tmp_path / "out" / "base" / "responses.jsonl")
    ]
    assert asked == []
    assert sorted(read) == [tmp_path / "out" / name / "responses.jsonl" for name in ("base", "other")]
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
