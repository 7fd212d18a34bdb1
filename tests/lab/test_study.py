"""One loop for every study: batches cut alike, resumed to the same answers, arms in turns, notes kept beside them."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import reweigh.lab.runs.record as record_module
from answering import answer, arm, toy_runs
from reweigh.engines.answer import Answer
from reweigh.errors import ArtifactError, InputError, MismatchError, ReweighError
from reweigh.files.artifacts import read_json, read_jsonl
from reweigh.job import MANIFEST, RECORD, ROWS, Job
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.study import Answered, Arm, Batch, Opened, Study, batch_seed, batches
from reweigh.lab.tasks.base import Record
from shuffled import Shuffled

N = 23
RECORDS = [Record(id=f"v{i}", image=f"{i % 3}.png", prompt=f"Q{i}", max_new_tokens=8) for i in range(N)]


class Fake:
    """A model whose answer depends on picture, prompt, limit, batch and seed: nothing may be mixed up."""

    def __init__(
        self, stop_after: int | None = None, wait: float = 0.0, hang_after: int | None = None
    ) -> None:
        self.calls: list[list[str]] = []
        self.stop_after, self.wait, self.hang_after = stop_after, wait, hang_after

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


def pictures(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    for i in range(3):
        Image.new("RGB", (8, 8), (10 * i, 0, 0)).save(folder / f"{i}.png")
    return folder


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pictures(tmp_path_factory.mktemp("images"))


def asked(images: Path, size: int = 1, records: Any = RECORDS, seed: int = 42) -> Runs:
    task = Task(None, records, images, {"name": "made"}, {})  # type: ignore[arg-type]
    return Runs(task, {"id": "m"}, batch_size=size, seed=seed)


def test_every_record_is_answered_in_order(tmp_path: Path, images: Path) -> None:
    fake = Fake()
    assert answer(asked(images, 4, seed=7), fake, tmp_path) == N
    rows = read_jsonl(tmp_path / ROWS)
    assert [(row["id"], row["image"], row["prompt"]) for row in rows] == [
        (one.id, one.image, one.prompt) for one in RECORDS
    ]
    assert rows[5]["response"] == f"Q5 red 20 of 4 up to 8 seed {batch_seed(7, 4)} ü\n"
    assert [len(call) for call in fake.calls] == [4, 4, 4, 4, 4, 3]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.integers(1, 6), stops=st.lists(st.integers(0, 4), max_size=5), cut=st.integers(0, 200))
def test_a_stopped_run_ends_with_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, images: Path, size: int, stops: list[int], cut: int
) -> None:
    runs, whole = asked(images, size), tmp_path_factory.mktemp("whole")
    answer(runs, Fake(), whole)
    folder = tmp_path_factory.mktemp("stopped")
    for stop in stops:
        with contextlib.suppress(KeyboardInterrupt):
            answer(runs, Fake(stop_after=stop), folder)
        if (folder / ROWS).exists() and not (folder / MANIFEST).exists():
            # A kill while writing leaves the file short by any number of bytes.
            data = (folder / ROWS).read_bytes()
            (folder / ROWS).write_bytes(data[: max(0, len(data) - cut)])
    answer(runs, Fake(), folder)
    assert {path.name: path.read_bytes() for path in folder.glob("*.json*")} == {
        path.name: path.read_bytes() for path in whole.glob("*.json*")
    }
    assert answer(runs, Fake(stop_after=0), folder) == 0


def test_finished_batches_are_not_asked_again(tmp_path: Path, images: Path) -> None:
    first, second = Fake(stop_after=3), Fake()
    with pytest.raises(KeyboardInterrupt):
        answer(asked(images, 4), first, tmp_path)
    assert answer(asked(images, 4), second, tmp_path) == N - 12
    prompts = [prompt for fake in (first, second) for call in fake.calls for prompt in call]
    assert prompts == [record.prompt for record in RECORDS]


SCRIPT = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
from test_study import Fake, asked
from answering import answer
answer(asked(Path({images!r}), 2), Fake({fake}), Path({folder!r}))
"""


def script(folder: Path, images: Path, fake: str) -> str:
    path = [str(Path(__file__).parent), *sys.path]
    return SCRIPT.format(path=path, folder=str(folder), images=str(images), fake=fake)


@pytest.mark.slow
def test_kill_nine_loses_and_repeats_nothing(tmp_path: Path, images: Path) -> None:
    answer(asked(images, 2), Fake(), tmp_path / "whole")
    rows = tmp_path / "killed" / ROWS
    code = script(tmp_path / "killed", images, "wait=0.02, hang_after=3")  # it cannot end before it is killed
    kills = 0
    for _ in range(40):
        before = rows.read_bytes().count(b"\n") if rows.exists() else 0
        process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
        while process.poll() is None:
            if rows.exists() and rows.read_bytes().count(b"\n") > before + 3:
                process.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.005)
        if process.wait() == 0:
            break
    assert kills >= 2
    assert rows.read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


def test_control_c_stops_cleanly(tmp_path: Path, images: Path) -> None:
    code = script(tmp_path / "run", images, "wait=0.02")
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE)
    while not (tmp_path / "run" / ROWS).exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.communicate()
    for name in ("run", "whole"):
        answer(asked(images, 2), Fake(), tmp_path / name)
    assert (tmp_path / "run" / ROWS).read_bytes() == (tmp_path / "whole" / ROWS).read_bytes()


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


def test_no_records_are_a_finished_run(tmp_path: Path, images: Path) -> None:
    assert answer(asked(images, records=[]), Fake(), tmp_path) == 0
    assert Job.read(tmp_path).finished
    assert (tmp_path / ROWS).read_bytes() == b""


def test_half_a_surrogate_pair_does_not_stop_a_run(tmp_path: Path, images: Path) -> None:
    answer(asked(images, records=RECORDS[:2]), lambda batch: [Answer("a \ud83d b")], tmp_path)
    assert read_jsonl(tmp_path / ROWS)[0]["response"] == "a ? b"


@pytest.mark.parametrize("answers", [[Answer("one")], "two texts", [Answer("a"), None], None, ["a", "b"]])
def test_a_wrong_number_or_kind_of_answers_is_refused(tmp_path: Path, images: Path, answers: Any) -> None:
    with pytest.raises(ReweighError, match="2 prompts"):
        answer(asked(images, 2, RECORDS[:2]), lambda batch: answers, tmp_path)


@pytest.mark.parametrize("removed", ["folder", "record"])
@pytest.mark.parametrize("at", [2, N - 1])
def test_what_is_removed_under_a_run_is_an_error(tmp_path: Path, images: Path, removed: str, at: int) -> None:
    folder, fake = tmp_path / "run", Fake()

    def ask(batch: Batch) -> list[Answer]:
        if batch.start == at:
            shutil.rmtree(folder) if removed == "folder" else (folder / RECORD).unlink()
        return fake(batch)

    with pytest.raises(ArtifactError, match="removed"):
        answer(asked(images), ask, folder)
    assert len(fake.calls) == at + 1  # not a moment later


def test_parts_on_several_machines_make_the_whole(tmp_path: Path, images: Path) -> None:
    runs, fakes = asked(images, 2), [Fake(), Fake()]
    for number, fake in enumerate(fakes, start=1):
        answer(runs, fake, tmp_path / f"part-{number}", shard=f"{number}/2")
        assert not Job.read(tmp_path / f"part-{number}").finished
    assert sum(len(call) for fake in fakes for call in fake.calls) == N
    answer(runs, Fake(), tmp_path / "whole")
    merged = Job.open(None, runs.record({}), parts=12)
    merged.record = Job.read(tmp_path / "part-1").record
    merged.merge(Job.read(tmp_path / f"part-{number}") for number in (1, 2))
    assert merged.rows() == Job.read(tmp_path / "whole").rows()


@pytest.mark.parametrize(
    ("decoding", "key"),
    [
        ({"beta": 0.5}, r"decoding\.beta \(1\.1; now 0\.5\)"),
        ({}, r"decoding\.beta \(1\.1; now none\)"),
        ({"beta": 1.1, "options": {"window": None}}, r"decoding\.options\.window \(none; now 'null'\)"),
    ],
)
def test_another_decoder_in_the_same_folder_is_refused_by_name(
    tmp_path: Path, images: Path, decoding: dict[str, Any], key: str
) -> None:
    answer(asked(images, 4), Fake(), tmp_path, {"beta": 1.1})
    with pytest.raises(MismatchError, match=f"different {key}"):
        answer(asked(images, 4), Fake(), tmp_path, decoding)


def test_another_model_seed_or_selection_is_refused_by_name(tmp_path: Path, images: Path) -> None:
    runs = asked(images, 4)
    answer(runs, Fake(), tmp_path)
    about = {"name": "made", "limit": 4}
    fewer = Runs(
        Task(None, RECORDS[:4], images, about, {}),
        {"id": "m"},
        batch_size=4,  # type: ignore[arg-type]
    )
    for changed, key in (
        (replace(runs, model={"id": "m", "revision": "main"}), r"model\.revision"),
        (replace(runs, seed=1), "seed"),
        (fewer, r"benchmark\.limit"),
        (replace(runs, batch_size=5), "batch_size"),
    ):
        with pytest.raises(MismatchError, match=key):
            answer(changed, Fake(), tmp_path)


def test_images_are_hashed_once_for_all_runs(
    tmp_path: Path, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[Path] = []
    original = record_module.sha256_file
    monkeypatch.setattr(record_module, "sha256_file", lambda path: hashed.append(path) or original(path))
    runs = asked(images, 4)
    for beta in range(3):
        answer(runs, Fake(), tmp_path / f"{beta}", {"beta": beta})
    assert len(hashed) == 3


def test_figures_that_a_command_needs(tmp_path: Path) -> None:
    task = toy_runs(tmp_path / "images", limit=5).task
    task.require(("chair_s", "f1"), "tuning")
    with pytest.raises(InputError, match="cover"):
        task.require(("chair_s", "cover"), "tuning")


# Several arms.


def arms(called: list[tuple[str, int]]) -> list[Arm]:
    """Two arms that note which batches they were asked."""

    def made(name: str, text: str) -> Arm:
        def ask(batch: Batch) -> Answered:
            called.append((name, batch.start))
            return Answered([Answer(text) for _ in batch.records], {"size": len(batch.records)})

        return arm(name, ask)

    return [made("base", "a dog and a bus"), made("other", "a dog")]


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return toy_runs(tmp_path / "images", limit=5)


def test_arms_take_turns_in_an_order_that_rotates(runs: Runs, tmp_path: Path) -> None:
    called: list[tuple[str, int]] = []
    study = Study([runs], arms(called), tmp_path / "out", interleave=True)
    frame = study.run()
    assert called == [("base", 0), ("other", 0), ("other", 2), ("base", 2), ("base", 4), ("other", 4)]
    assert frame.distinct("arm") == ["base", "other"]
    assert set(frame.against("base").distinct("arm")) == {"other"}
    assert [note["size"] for note in study.notes(runs, study.arms[0])] == [2, 2, 1]
    assert set(study.scored["toy"]["other"].texts.values()) == {"a dog"}


def test_a_finished_study_is_read_and_nothing_is_asked(runs: Runs, tmp_path: Path) -> None:
    first = Study([runs], arms([]), tmp_path / "out").run()
    before = {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}
    called: list[tuple[str, int]] = []
    again = Study([runs], arms(called), tmp_path / "out")
    assert again.run() == first
    assert called == []
    assert again.answered == 0
    assert [note["size"] for note in again.notes(runs, again.arms[0])] == [2, 2, 1]
    assert before == {file: file.read_bytes() for file in tmp_path.rglob("*.jsonl")}


def test_studies_that_share_a_folder_answer_nothing_twice(runs: Runs, tmp_path: Path) -> None:
    called: list[tuple[str, int]] = []
    both = arms(called)
    Study([runs], both[:1], tmp_path / "out").run()
    Study([runs], both, tmp_path / "out").run()
    assert [start for name, start in called if name == "base"] == [0, 2, 4]


def test_several_tasks_fill_one_frame(runs: Runs, tmp_path: Path) -> None:
    other = replace(runs.task, metadata={"name": "second"})
    frame = Study([runs, Runs(other, {"id": "m"}, batch_size=2)], arms([]), tmp_path / "out").run()
    assert frame.distinct("benchmark") == ["toy", "second"]
    assert read_scored(tmp_path / "out" / "second" / "other").summary.n == 5
    first, second = (
        frame.one(benchmark=name, arm="base", figure="chair_s", against=None) for name in ("toy", "second")
    )
    assert first == second


@pytest.mark.parametrize("name", ["items.jsonl", ROWS, MANIFEST, RECORD, "results.json", "report.html"])
def test_a_file_of_the_users_in_a_run_folder_survives_and_nothing_is_asked(
    runs: Runs, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "out" / "toy" / "other" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"mine": 1')
    called: list[tuple[str, int]] = []
    with pytest.raises((ArtifactError, InputError), match=path.name):
        Study([runs], arms(called), tmp_path / "out").run()
    assert path.read_bytes() == b'{"mine": 1'
    assert called == []


def test_scores_of_others_are_replaced_when_overwriting(runs: Runs, tmp_path: Path, overwriting: Any) -> None:
    path = tmp_path / "out" / "toy" / "base" / "items.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    with overwriting():
        Study([runs], arms([]), tmp_path / "out").run()
    assert len(read_jsonl(path)) == 5


def test_what_a_session_is_asked_and_who_watches(runs: Runs, tmp_path: Path) -> None:
    """The decoder's own regime, the batch's seed and limit; settings of arm and observers while it answers."""
    from reweigh.lab.study import Observer

    said: list[Any] = []

    class Session:
        class decoder:
            @staticmethod
            def decoding() -> dict[str, Any]:
                return {"do_sample": True}

        def record(self) -> dict[str, Any]:
            return {"decoder": "made"}

        def prepare(self, pictures: Any, prompts: Any, *, template: Any = None) -> dict[str, Any]:
            return {"prompts": prompts, "template": template}

        def respond(self, inputs: Any, **options: Any) -> list[Answer]:
            said.append((inputs, options))
            return [Answer("a dog", (1, 2)) for _ in inputs["prompts"]]

        @contextlib.contextmanager
        def using(self, **options: Any) -> Any:
            said.append(options)
            yield

    class Count(Observer):
        def settings(self, call: Any) -> dict[str, Any]:
            return {"observer": "me"}

        def note(self, call: Any) -> dict[str, Any]:
            return {"words": sum(len(one.text.split()) for one in call.answers)}

    made = Arm("made", lambda _: Session(), "", [Count()], lambda _, batch: {"evidence": batch.start})
    study = Study([replace(runs, template="T")], [made], tmp_path / "out", reference=None)
    study.run()
    assert [note["words"] for note in study.notes(runs, made)] == [4, 4, 2]
    limit = runs.task.records[0].max_new_tokens
    assert said[:2] == [
        {"evidence": 0, "observer": "me"},
        (
            {"prompts": [one.prompt for one in runs.task.records[:2]], "template": "T"},
            {"seed": batch_seed(42, 0), "do_sample": True, "max_new_tokens": limit},
        ),
    ]
    assert read_json(tmp_path / "out" / "toy" / "made" / RECORD)["record"]["decoding"]["decoder"] == "made"


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10**6), workers=st.integers(1, 4), kept=st.integers(0, 3))
def test_answers_of_workers_in_any_order_are_those_of_one_machine(
    runs: Runs, tmp_path_factory: pytest.TempPathFactory, seed: int, workers: int, kept: int
) -> None:
    folder = tmp_path_factory.mktemp("study")
    alone = Study([runs], arms([]), folder / "alone", interleave=True)
    frame = alone.run()
    begun, stop = 0, arms([])

    def until(batch: Batch) -> Answered:
        nonlocal begun
        if begun == kept:
            raise KeyboardInterrupt
        begun += 1
        return Answered([Answer("a dog") for _ in batch.records], {"size": len(batch.records)})

    with contextlib.suppress(KeyboardInterrupt):
        Study([runs], [arm("other", until)], folder / "crew").answer(runs, [arm("other", until)])
    asks = {one.name: one.opened(None).ask for one in stop}
    crew = Shuffled(lambda task: {name: asks[name](task[0]) for name in task[1]}, workers, seed)
    elsewhere = [Arm(name, lambda _, name=name: Opened({"decoder": name}, None)) for name in asks]  # type: ignore[arg-type,misc]
    there = Study([runs], elsewhere, folder / "crew", interleave=True, workers=crew)
    assert there.run() == frame
    assert there.answered == 2 * len(runs.task.records) - min(2 * kept, 5)
    for name in asks:
        assert (folder / "crew" / "toy" / name / ROWS).read_bytes() == (
            folder / "alone" / "toy" / name / ROWS
        ).read_bytes()
