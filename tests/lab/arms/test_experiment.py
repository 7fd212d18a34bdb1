"""The one loop: arms in turns, resumed, scored; a finished run's answers are read once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import reweigh
from reweigh.engines.answer import Answer
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import read_jsonl
from reweigh.files.seals import seal_row, write_sealed
from reweigh.lab.arms.experiment import Arm, Experiment, OpenArm
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame, Row
from reweigh.lab.runs import run as run_module
from reweigh.lab.runs.record import run_owner
from reweigh.lab.runs.run import Answered, Batch
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.views.report import FRAME, write_frame
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

        return Arm(name, lambda: OpenArm({"decoder": name}, ask), "notes.jsonl")

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
    monkeypatch.setattr("reweigh.lab.runs.score.read_sealed_rows", counted)
    asked: list[tuple[str, int]] = []
    again = Experiment(runs, arms(asked), tmp_path / "out")
    assert again.run("base") == first
    assert again.texts(again.arms[0]) == [
        row["response"] for row in read_jsonl(tmp_path / "out" / "base" / "responses.jsonl")
    ]
    assert asked == []
    assert sorted(read) == [tmp_path / "out" / name / "responses.jsonl" for name in ("base", "other")]
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}


def without_row(path: Path, number: int) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:number] + lines[number + 1 :]))


@pytest.mark.parametrize("number", range(4))
def test_a_note_that_was_removed_is_noticed(runs: Runs, tmp_path: Path, number: int) -> None:
    """Also one of two tries of a batch, which leaves a note for every batch."""
    first = Experiment(runs, arms([]), tmp_path / "out")
    first.answer(first.arms[0])
    notes = tmp_path / "out" / "base" / "notes.jsonl"
    tried = seal_row(
        {"start": 4, "size": 9}, run_owner(notes.parent)
    )  # as a kill before the answer leaves it
    lines = notes.read_text().splitlines()
    notes.write_text("\n".join([*lines[:2], json.dumps(tried, sort_keys=True), lines[2]]) + "\n")
    first.run("base")
    assert [row["size"] for row in first.notes(first.arms[0])] == [2, 2, 1]
    without_row(notes, number)
    with pytest.raises(ArtifactError, match=r"notes\.jsonl"):
        Experiment(runs, arms([]), tmp_path / "out").run("base")


ROWS = ["items.jsonl", "manifest.jsonl", "notes.jsonl", "responses.jsonl"]


def test_another_selection_is_refused_by_name(runs: Runs, tmp_path: Path) -> None:
    """Not as a file that has too many answers."""
    Experiment(runs, arms([]), tmp_path / "out").run("base")
    about = {**runs.task.metadata, "limit": 4}
    fewer = replace(runs, task=replace(runs.task, records=runs.task.records[:4], metadata=about))
    with pytest.raises(MismatchError, match=r"another benchmark\.limit: 5 there, 4 now"):
        Experiment(fewer, arms([]), tmp_path / "out").run("base")


@pytest.mark.parametrize("name", [*ROWS, "record.json", "results.json", "report.html"])
def test_a_file_of_the_users_in_a_run_folder_survives_and_nothing_is_asked(
    runs: Runs, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "out" / "other" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"mine": 1')
    asked: list[tuple[str, int]] = []
    with pytest.raises((ArtifactError, InputError), match=path.name):
        Experiment(runs, arms(asked), tmp_path / "out").run("base")
    assert path.read_bytes() == b'{"mine": 1'
    assert asked == []


def test_scores_of_others_are_replaced_when_overwriting(runs: Runs, tmp_path: Path, overwriting: Any) -> None:
    path = tmp_path / "out" / "base" / "items.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with overwriting():
        Experiment(runs, arms([]), tmp_path / "out").run("base")
    assert len(read_jsonl(path)) == 5


MADE = Frame([Row({"arm": "base", "against": None}, Estimate(1.0, 0.0, 2.0))], {"model": "world"})


def test_the_frame_of_an_experiment_comes_back(tmp_path):
    write_frame(MADE, tmp_path)
    assert reweigh.read(tmp_path) == MADE
    assert reweigh.read(str(tmp_path)) == MADE
    text = (tmp_path / FRAME).read_text()
    (tmp_path / FRAME).write_text(text.replace("2.0", "3.0"))
    with pytest.raises(ArtifactError, match="altered"):
        reweigh.read(tmp_path)


def test_a_folder_of_studies_names_them(tmp_path):
    write_frame(MADE, tmp_path / "scale")
    write_sealed(tmp_path / "scale" / "study.json", {})
    assert reweigh.read(tmp_path / "scale") == MADE
    with pytest.raises(InputError, match="several") as told:
        reweigh.read(tmp_path)
    assert "scale" in str(told.value.hint)


def test_what_holds_no_frame_is_reported(tmp_path):
    with pytest.raises(InputError, match="results"):
        reweigh.read(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    with pytest.raises(InputError, match="results") as told:
        reweigh.read(tmp_path)
    assert "earlier version" in str(told.value.hint)
