from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from reweigh.engines.answer import Answer
from reweigh.errors import ArtifactError, InputError, ReweighError
from reweigh.files.artifacts import read_jsonl
from reweigh.files.seals import append_sealed_rows, write_sealed
from reweigh.lab.runs.record import RESPONSES, make_record, open_run, read_run
from reweigh.lab.runs.run import Batch, batch_seed, batches, generate
from reweigh.lab.tasks.base import Record

N = 23
RECORDS = [Record(id=f"v{i}", image=f"{i % 3}.png", prompt=f"Q{i}", max_new_tokens=8) for i in range(N)]


class Fake:
    """A model whose answer depends on picture, prompt, limit, batch and seed: nothing may be mixed up."""

    def __init__(
        self, stop_after: int | None = None, wait: float = 0.0, hang_after: int | None = None
    ) -> None:
        self.calls: list[list[str]] = []
        self.stop_after = stop_after
        self.wait = wait
        self.hang_after = hang_after

    def __call__(self, batch: Batch) -> list[Answer]:
        if self.stop_after is not None and len(self.calls) == self.stop_after:
            raise KeyboardInterrupt
        time.sleep(600 if len(self.calls) == self.hang_after else self.wait)
        self.calls.append(batch.prompts)
        return [
            Answer(
                f"{prompt} red {image.getpixel((0, 0))[0]} of {len(batch.records)} "
                f"up to {batch.max_new_tokens} seed {batch.seed} ü\n"
            )
            for image, prompt in zip(batch.pictures, batch.prompts, strict=True)
        ]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    for i in range(3):
        Image.new("RGB", (8, 8), (10 * i, 0, 0)).save(folder / f"{i}.png")
    return folder


def whole(images: Path, folder: Path, size: int) -> bytes:
    generate(Fake(), RECORDS, folder, images=images, batch_size=size)
    return (folder / RESPONSES).read_bytes()


def test_every_record_is_answered_in_order(tmp_path: Path, images: Path) -> None:
    fake = Fake()
    assert generate(fake, RECORDS, tmp_path, images=images, batch_size=4, seed=7) == N
    rows = read_jsonl(tmp_path / RESPONSES)
    assert [row["id"] for row in rows] == [record.id for record in RECORDS]
    assert rows[5]["response"] == f"Q5 red 20 of 4 up to 8 seed {batch_seed(7, 4)} ü\n"
    assert [len(call) for call in fake.calls] == [4, 4, 4, 4, 4, 3]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(1, 6), stops=st.lists(st.integers(0, 4), max_size=5), cut=st.integers(0, 200))
def test_a_stopped_run_ends_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, images: Path, size: int, stops: list[int], cut: int
) -> None:
    expected = whole(images, tmp_path_factory.mktemp("whole"), size)
    folder = tmp_path_factory.mktemp("stopped")
    for stop in stops:
        fake = Fake(stop_after=stop)
        with contextlib.suppress(KeyboardInterrupt):
            generate(fake, RECORDS, folder, images=images, batch_size=size)
        if (folder / RESPONSES).exists():
            # A kill while writing leaves the file short by any number of bytes; its first rows are there or not at all.
            data = (folder / RESPONSES).read_bytes()
            (folder / RESPONSES).write_bytes(data[: max(data.find(b"\n") + 1, len(data) - cut)])
    last = Fake()
    generate(last, RECORDS, folder, images=images, batch_size=size)
    assert (folder / RESPONSES).read_bytes() == expected
    assert generate(Fake(stop_after=0), RECORDS, folder, images=images, batch_size=size) == 0


def test_finished_items_are_not_asked_again(tmp_path: Path, images: Path) -> None:
    first = Fake(stop_after=3)
    with pytest.raises(KeyboardInterrupt):
        generate(first, RECORDS, tmp_path, images=images, batch_size=4)
    second = Fake()
    assert generate(second, RECORDS, tmp_path, images=images, batch_size=4) == N - 12
    asked = [prompt for fake in (first, second) for call in fake.calls for prompt in call]
    assert asked == [record.prompt for record in RECORDS]


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_run import RECORDS, Fake
from reweigh.lab.runs.run import generate
generate(Fake({fake}), RECORDS, Path({folder!r}), images=Path({images!r}), batch_size=2)
"""


def script(folder: Path, images: Path, fake: str) -> str:
    here = str(Path(__file__).parent)
    return SCRIPT.format(here=here, folder=str(folder), images=str(images), fake=fake)


@pytest.mark.slow
def test_kill_nine_loses_and_repeats_nothing(tmp_path: Path, images: Path) -> None:
    expected = whole(images, tmp_path / "whole", 2)
    folder = tmp_path / "killed"
    code = script(folder, images, "wait=0.02, hang_after=3")  # it cannot end before it is killed
    kills = 0
    for _ in range(40):
        before = len(read_jsonl(folder / RESPONSES)) if (folder / RESPONSES).exists() else 0
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        while process.poll() is None:
            now = (folder / RESPONSES).read_bytes().count(b"\n") if (folder / RESPONSES).exists() else 0
            if now > before + 3:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        if process.wait() == 0:
            break
    assert kills >= 2
    assert (folder / RESPONSES).read_bytes() == expected


def test_control_c_stops_cleanly(tmp_path: Path, images: Path) -> None:
    code = script(tmp_path, images, "wait=0.02")
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    while not (tmp_path / RESPONSES).exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate()
    generate(Fake(), RECORDS, tmp_path, images=images, batch_size=2)
    assert (tmp_path / RESPONSES).read_bytes() == whole(images, tmp_path / "whole", 2)


@given(st.lists(st.sampled_from([8, 128]), max_size=20), st.integers(1, 5))
def test_batches_are_the_records_and_share_a_limit(limits: list[int], size: int) -> None:
    records = [Record(id=i, image="", prompt="", max_new_tokens=limit) for i, limit in enumerate(limits)]
    cut = list(batches(records, size))
    assert [record for _, batch in cut for record in batch] == records
    for start, batch in cut:
        assert batch[0].id == start
        assert 1 <= len(batch) <= size
        assert len({record.max_new_tokens for record in batch}) == 1


def test_seeds_differ_by_place_and_seed() -> None:
    assert len({batch_seed(seed, start) for seed in range(5) for start in range(50)}) == 250
    assert batch_seed(42, 0) == batch_seed(42, 0)


def test_no_records_give_an_empty_file(tmp_path: Path, images: Path) -> None:
    assert generate(Fake(), [], tmp_path, images=images) == 0
    assert (tmp_path / RESPONSES).read_bytes() == b""


def test_half_a_surrogate_pair_does_not_stop_a_run(tmp_path: Path, images: Path) -> None:
    def odd(batch: Batch) -> list[Answer]:
        return [Answer("a \ud83d b")] * len(batch.records)

    generate(odd, RECORDS[:2], tmp_path, images=images)
    assert read_jsonl(tmp_path / RESPONSES)[0]["response"] == "a ? b"


@pytest.mark.parametrize("answers", [[Answer("one")], "two texts", [Answer("a"), None], None, ["a", "b"]])
def test_a_wrong_number_or_kind_of_answers_is_refused(tmp_path: Path, images: Path, answers: Any) -> None:
    with pytest.raises(ReweighError, match="2 prompts"):
        generate(lambda batch: answers, RECORDS[:2], tmp_path, images=images, batch_size=2)


def test_foreign_responses_are_refused(tmp_path: Path, images: Path) -> None:
    (tmp_path / RESPONSES).write_text('{"id": "v0", "response": "x"}\n')
    with pytest.raises(ArtifactError, match="row 1"):
        generate(Fake(), RECORDS, tmp_path, images=images)
    (tmp_path / RESPONSES).unlink()
    append_sealed_rows(tmp_path / RESPONSES, [{"id": "v1", "response": "x"}], owner="")
    with pytest.raises(ArtifactError, match="'v1'"):
        generate(Fake(), RECORDS, tmp_path, images=images)
    with pytest.raises(ArtifactError, match="0 records"):
        generate(Fake(), [], tmp_path, images=images)
    with pytest.raises(InputError, match="batch size"):
        generate(Fake(), RECORDS, tmp_path / "new", images=images, batch_size=0)


def test_an_edited_answer_is_named_and_not_built_upon(tmp_path: Path, images: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        generate(Fake(stop_after=4), RECORDS, tmp_path, images=images)
    text = (tmp_path / RESPONSES).read_text()
    (tmp_path / RESPONSES).write_text(text.replace("Q2 red", "Q2 blue"))
    with pytest.raises(ArtifactError, match="row 3"):
        generate(Fake(), RECORDS, tmp_path, images=images)


@pytest.mark.parametrize("removed", ["folder", "file"])
@pytest.mark.parametrize("at", [2, N - 1])
def test_what_is_removed_under_a_run_is_an_error(tmp_path: Path, images: Path, removed: str, at: int) -> None:
    folder, fake = tmp_path / "run", Fake()

    def ask(batch: Batch) -> list[Answer]:
        if batch.start == at:
            shutil.rmtree(folder) if removed == "folder" else (folder / RESPONSES).unlink()
        return fake(batch)

    with pytest.raises(ArtifactError, match=r"written|removed"):
        generate(ask, RECORDS, folder, images=images)
    assert len(fake.calls) == at + 1  # not a moment later
    assert folder.exists() == (removed == "file")


def test_what_is_cut_under_a_run_is_an_error_at_its_end(tmp_path: Path, images: Path) -> None:
    fake = Fake()

    def ask(batch: Batch) -> list[Answer]:
        if batch.start == 5:
            (tmp_path / RESPONSES).write_text("")
        return fake(batch)

    with pytest.raises(ArtifactError, match="'v5'"):
        generate(ask, RECORDS, tmp_path, images=images)


def test_a_record_of_another_schema_is_refused(tmp_path: Path, images: Path) -> None:
    record = make_record(
        benchmark={}, model={}, decoding={}, records=RECORDS, images=images, seed=1, folders={}
    )
    open_run(tmp_path, record, RECORDS)
    write_sealed(tmp_path / "record.json", record | {"schema": 99})
    with pytest.raises(ArtifactError, match="schema 99"):
        read_run(tmp_path)
