"""A job's folder: resumed after any kill it ends with the bytes of an unbroken one, and altered files are refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.job import MANIFEST, RECORD, ROWS, Job, parse_shard

ASKED = {"model": {"id": "world"}, "seed": 42, "places": {"data": "/here"}}


def rows_of(part: int) -> list[dict[str, object]]:
    return [{"id": f"{part}-{index}", "text": "größer\n" * index} for index in range(1 + part % 3)]


def arrays_of(part: int) -> dict[str, np.ndarray]:
    return {"values": np.arange(part, dtype=np.float32)}


def work(folder: Path | None, parts: int = 4, *, order: list[int] | None = None) -> Job:
    with Job.open(folder, ASKED, parts=parts) as job:
        for part in order or job.pending():
            job.append(part, rows_of(part), arrays=arrays_of(part), note={"cost": part})
    return job


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_rows_arrays_and_notes_come_back_in_order(tmp_path: Path) -> None:
    work(tmp_path, order=[2, 0, 3, 1])
    job = Job.read(tmp_path)
    assert job.finished
    assert job.rows() == [row for part in range(4) for row in rows_of(part)]
    assert job.notes() == {part: {"cost": part} for part in range(4)}
    np.testing.assert_array_equal(job.arrays(3)["values"], arrays_of(3)["values"])


def test_in_memory_it_gives_the_same(tmp_path: Path) -> None:
    kept, held = work(tmp_path), work(None, order=[3, 1, 0, 2])
    assert held.rows() == kept.rows()
    assert held.notes() == kept.notes()
    assert held.finished


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(0, 10_000), order=st.permutations(range(4)))
def test_a_kill_at_any_byte_changes_nothing(
    cut: int, order: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole, killed = tmp_path_factory.mktemp("whole"), tmp_path_factory.mktemp("killed")
    work(whole)
    with Job.open(killed, ASKED, parts=4) as job:
        for part in order[:3]:
            job.append(part, rows_of(part), arrays=arrays_of(part), note={"cost": part})
    data = (killed / ROWS).read_bytes()
    (killed / ROWS).write_bytes(data[: max(1, cut % (len(data) + 1))])
    work(killed)
    assert content(killed) == content(whole)


def test_a_kill_before_the_manifest_is_made_good(tmp_path: Path) -> None:
    work(tmp_path)
    before = content(tmp_path)
    (tmp_path / MANIFEST).unlink()
    work(tmp_path)
    assert content(tmp_path) == before


def test_another_record_is_refused_and_places_are_not_compared(tmp_path: Path) -> None:
    work(tmp_path)
    with Job.open(tmp_path, {**ASKED, "places": {"data": "/there"}}, parts=4) as job:
        assert job.pending() == []
    with pytest.raises(MismatchError, match=r"different model\.id \('world'; now 'other'\)"):
        Job.open(tmp_path, {**ASKED, "model": {"id": "other"}}, parts=4)
    with pytest.raises(MismatchError, match="parts"):
        Job.open(tmp_path, ASKED, parts=5)
    work(tmp_path)  # a refusal releases the lock


@pytest.mark.parametrize("name", [RECORD, ROWS])
def test_an_altered_file_of_a_finished_job_is_refused(name: str, tmp_path: Path) -> None:
    work(tmp_path)
    path = tmp_path / name
    path.write_text(path.read_text().replace("0-0", "0-9").replace("42", "43"))
    with pytest.raises(ArtifactError, match=name):
        Job.read(tmp_path)


def test_altered_arrays_are_refused(tmp_path: Path) -> None:
    work(tmp_path)
    path = tmp_path / "part-000002.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    with pytest.raises(ArtifactError, match="part-000002"):
        Job.read(tmp_path).arrays(2)


def test_rows_of_others_are_refused(tmp_path: Path) -> None:
    (tmp_path / ROWS).write_text("mine\n")
    with pytest.raises(InputError, match=ROWS):
        Job.open(tmp_path, ASKED, parts=4)
    assert (tmp_path / ROWS).read_text() == "mine\n"
    assert not (tmp_path / RECORD).exists()


def test_a_row_that_is_not_of_the_job_is_refused(tmp_path: Path) -> None:
    with Job.open(tmp_path, ASKED, parts=4) as job:
        job.append(0, rows_of(0))
    with (tmp_path / ROWS).open("a") as file:
        file.write(json.dumps({"part": 9, "of": 1}) + "\n")
    with pytest.raises(ArtifactError, match="line 2"):
        Job.read(tmp_path)


def test_two_processes_cannot_write_at_once(tmp_path: Path) -> None:
    with Job.open(tmp_path, ASKED, parts=1), pytest.raises(InputError, match="another process"):
        Job.open(tmp_path, ASKED, parts=1)


def test_a_removed_folder_is_noticed(tmp_path: Path) -> None:
    with Job.open(tmp_path / "job", ASKED, parts=2) as job:
        (tmp_path / "job" / RECORD).unlink()
        with pytest.raises(ArtifactError, match="is gone"):
            job.append(0, rows_of(0))


def test_shards_merge_to_the_whole(tmp_path: Path) -> None:
    whole, merged = tmp_path / "whole", tmp_path / "merged"
    work(whole, parts=7)
    shards = []
    for index in (2, 3, 1):
        with Job.open(tmp_path / str(index), ASKED, parts=7) as job:
            for part in job.pending(f"{index}/3"):
                job.append(part, rows_of(part), arrays=arrays_of(part), note={"cost": part})
        assert not job.finished
        shards.append(Job.read(tmp_path / str(index)))
    with Job.open(merged, ASKED, parts=7) as job:
        job.merge(shards)
    assert content(merged) == content(whole)


def test_another_job_is_not_merged(tmp_path: Path) -> None:
    work(tmp_path / "one")
    with Job.open(None, {**ASKED, "seed": 1}, parts=4) as job, pytest.raises(MismatchError, match="seed"):
        job.merge([Job.read(tmp_path / "one")])


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", ""])
def test_what_is_not_a_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="shard"):
        parse_shard(text)
