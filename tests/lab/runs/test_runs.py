"""Runs of one task: opened alike, answered where they stopped, scored in their folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

import reweigh.lab.runs.record as record_module
from reweigh.engines.answer import Answer
from reweigh.errors import InputError, MismatchError
from reweigh.files.artifacts import read_json, read_jsonl
from reweigh.lab.runs.task import Runs, Task
from toy_benchmark import Toy


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    images = tmp_path / "images"
    images.mkdir()
    bench = Toy(images)
    records = bench.records(limit=5)
    for record in records:
        Image.new("RGB", (4, 4), (int(record.id), 0, 0)).save(images / record.image)
    told = {"name": "toy", "options": {}, "limit": 5, "shard": "1/1"}
    return Runs(
        Task(bench, records, images, told, {"images": str(images)}), {"id": "m"}, batch_size=2, seed=7
    )


def test_answers_of_a_function_know_their_place(runs: Runs, tmp_path: Path) -> None:
    asked = []

    def ask(batch):
        ids = [record.id for record in batch.records]
        asked.append((batch.start, ids, [one.getpixel((0, 0))[0] for one in batch.pictures]))
        return [Answer(f"a dog and a bus, {batch.start}") for _ in ids]

    assert runs.answer(ask, tmp_path / "run", {"decoder": "x"}) == 5
    assert asked == [(0, [0, 1], [0, 1]), (2, [2, 3], [2, 3]), (4, [4], [4])]
    assert len(runs.folder(tmp_path / "run").rows) == 5
    assert runs.folder(tmp_path / "none").rows == []
    assert runs.answer(ask, tmp_path / "run", {"decoder": "x"}) == 0
    record = read_json(tmp_path / "run" / "record.json")
    assert record["decoding"] == {"decoder": "x", "batch_size": 2, "template": None}
    assert (record["seed"], record["records"], record["model"]) == (7, 5, {"id": "m"})
    scored = runs.score(runs.folder(tmp_path / "run"))
    assert scored.summary.metrics["chair_s"].value == 100
    assert len(read_jsonl(tmp_path / "run" / "items.jsonl")) == len(scored.items) == 5


def test_another_decoding_in_the_same_folder_is_refused(runs: Runs, tmp_path: Path) -> None:
    runs.open(tmp_path / "run", {"beta": 1.0})
    runs.open(tmp_path / "run", {"beta": 1.0})
    with pytest.raises(MismatchError, match=r"decoding\.beta"):
        runs.open(tmp_path / "run", {"beta": 2.0})


def test_images_are_hashed_once_for_all_runs(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = []
    original = record_module.sha256_file
    monkeypatch.setattr(record_module, "sha256_file", lambda path: hashed.append(path) or original(path))
    for beta in range(3):
        runs.open(tmp_path / f"{beta}", {"beta": beta})
    assert len(hashed) == 5


def test_figures_that_a_command_needs(runs: Runs) -> None:
    runs.task.require(("chair_s", "f1"), "tuning")
    with pytest.raises(InputError, match="cover"):
        runs.task.require(("chair_s", "cover"), "tuning")
