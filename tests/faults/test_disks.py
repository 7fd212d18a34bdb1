"""Full and read-only disks, real ones of a few hundred kilobytes: one message, nothing lost, and on it goes with room."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from answering import answer
from faults.targets import (
    make_calibration,
    make_scored,
    observations,
    read_calibration,
)
from reweigh.cli import start
from reweigh.engines.answer import Answer
from reweigh.errors import ArtifactError
from reweigh.files.artifacts import LEFTOVER, only_one, write_json
from reweigh.job import ROWS, Job
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.score import read_sources, score, write_scores
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.study import Batch
from reweigh.lab.tasks.base import Record
from toy_benchmark import Toy

Disk = tuple[Path, Callable[[str], None]]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A folder on a disk of 256 kB, and a function that mounts it anew with other options."""
    place = tmp_path / "disk"
    place.mkdir()

    def mount(options: str) -> None:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"this machine does not let us mount a disk ({done.stderr.strip()[:80]})")

    if sys.platform != "linux":
        pytest.skip("mounts a tmpfs, which Linux has")
    try:
        mount("size=256k")
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    yield place, mount
    subprocess.run(["umount", "-l", str(place)], check=False)


def left_over(folder: Path) -> list[Path]:
    return list(folder.rglob(f"*{LEFTOVER}"))


RECORDS = [Record(id=i, image=f"{i % 2}.png", prompt="Say.", max_new_tokens=8) for i in range(40)]


def say_much(batch: Batch) -> list[Answer]:
    return [Answer(f"{batch.start} " + "x" * 10_000)]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    from PIL import Image

    (tmp_path / "images").mkdir()
    for i in range(2):
        Image.new("RGB", (4, 4)).save(tmp_path / "images" / f"{i}.png")
    return tmp_path / "images"


def test_a_run_on_a_full_disk_keeps_its_answers_and_resumes_with_room(disk: Disk, pictures: Path) -> None:
    place, mount = disk
    runs = Runs(Task(None, RECORDS, pictures, {"name": "made"}, {}), {"id": "m"})  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match="No space left") as caught:
        answer(runs, say_much, place / "run")
    assert "room" in str(caught.value)
    mount("remount,size=4m")
    asked: list[int] = []

    def ask(batch: Batch) -> list[Answer]:
        asked.append(batch.start)
        return say_much(batch)

    answer(runs, ask, place / "run")
    answer(runs, say_much, place / "whole")
    assert 0 < len(asked) < len(RECORDS)
    assert (place / "run" / ROWS).read_bytes() == (place / "whole" / ROWS).read_bytes()


def test_a_calibration_on_a_full_disk_keeps_its_batches(disk: Disk) -> None:
    place, mount = disk
    rows = [seen.to_row() for seen in observations()]

    def write_all() -> None:
        with Job.open(place / "out", {}, parts=5000) as job:
            for part in job.pending():
                job.append(part, rows)

    with pytest.raises(ArtifactError, match="No space left"):
        write_all()
    assert left_over(place) == []
    done = Job.read(place / "out").done
    assert len(done) > 1
    mount("remount,size=4m")
    with Job.open(place / "out", {}, parts=5000) as job:
        job.append(len(done), rows)
    job = Job.read(place / "out")
    assert job.done == [*done, len(done)]
    assert all(job.part(part) == rows for part in job.done)


def test_scoring_on_a_full_disk_leaves_the_old_scores(disk: Disk) -> None:
    place, _ = disk
    make_scored(place / "run")
    before = read_scored(place / "run").results
    with suppress(OSError), (place / "ballast").open("ab", buffering=0) as ballast:
        while True:
            ballast.write(bytes(1024))
    source = read_sources([place / "run"])
    items, summary = score(Toy(place), source)
    with pytest.raises(ArtifactError, match="No space left"):
        write_scores(place / "run", items, summary, source, benchmark=Toy(place))
    assert read_scored(place / "run").results == before
    assert left_over(place) == []


def test_a_read_only_disk_is_read_and_not_written(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, mount = disk
    make_scored(place / "run")
    make_calibration(place / "calibration")
    scores, calibration = read_scored(place / "run").results, read_calibration(place / "calibration")
    mount("remount,ro")
    assert read_scored(place / "run").results == scores
    assert read_calibration(place / "calibration") == calibration
    for write in (lambda: write_json(place / "x.json", {}), lambda: Job.open(place / "new", {}, parts=1)):
        with pytest.raises(ArtifactError, match="Read-only") as caught:
            write()
        assert "another" in str(caught.value)
    with pytest.raises(ArtifactError, match="Read-only"), only_one(place / "new"):
        pass
    for command in (["eval", "score", "{}/run"], ["table", "merge", "{}/calibration", "-o", "{}/merged"]):
        monkeypatch.setattr(sys, "argv", ["reweigh", *(part.format(place) for part in command)])
        with pytest.raises(SystemExit) as ended:
            start.main()
        told = capsys.readouterr().err
        assert ended.value.code == 1
        assert told.startswith("error: ")
        assert "Read-only file system" in told
        assert "Traceback" not in told
