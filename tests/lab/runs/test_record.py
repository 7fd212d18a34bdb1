from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import only_one, write_json
from reweigh.lab.runs.record import (
    MANIFEST,
    NOT_COMPARED,
    RECORD,
    RESPONSES,
    find_image,
    make_record,
    open_run,
    read_run,
    run_owner,
)
from reweigh.lab.tasks.base import Record
from reweigh.provenance import environment, first_difference

RECORDS = [Record(id=i, image=f"{i % 2}.png", prompt="What?", max_new_tokens=8) for i in range(4)]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for i in range(2):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(folder / f"{i}.png")
    return folder


def a_record(images: Path, records: Sequence[Record] = RECORDS, **changed: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "benchmark": {"name": "toy", "options": {"variant": "x"}},
        "model": {"id": "m", "revision": None},
        "decoding": {"decoder": "reweigh", "beta": 1.1},
        "seed": 42,
        "folders": {"data": "here"},
    }
    return make_record(**{**given, **changed}, records=records, images=images)


def test_a_record_holds_what_the_contract_asks(images: Path) -> None:
    record = a_record(images)
    assert record["records"] == 4
    for key in ("manifest_sha256", "prompts_sha256", "images_sha256"):
        assert len(record[key]) == 64
    assert {"python", "packages"} <= set(record["environment"])
    assert {"reweigh", "numpy", "pillow"} <= set(environment()["packages"])
    json.dumps(record)


def test_everything_that_matters_changes_a_hash(images: Path) -> None:
    base = a_record(images)
    prompted = [Record(id=r.id, image=r.image, prompt="Why?", max_new_tokens=8) for r in RECORDS]
    assert a_record(images, prompted)["prompts_sha256"] != base["prompts_sha256"]
    limited = [Record(id=r.id, image=r.image, prompt=r.prompt, max_new_tokens=9) for r in RECORDS]
    assert a_record(images, limited)["manifest_sha256"] != base["manifest_sha256"]
    assert a_record(images, RECORDS[::-1])["manifest_sha256"] != base["manifest_sha256"]
    Image.new("RGB", (8, 8), (9, 9, 9)).save(images / "1.png")
    assert a_record(images)["images_sha256"] != base["images_sha256"]
    assert a_record(images)["manifest_sha256"] == base["manifest_sha256"]


def test_a_run_opens_twice_with_the_same_record(tmp_path: Path, images: Path) -> None:
    folder = tmp_path / "run"
    open_run(folder, a_record(images), RECORDS)
    before = (folder / RECORD).read_bytes()
    open_run(folder, a_record(images, folders={"data": "moved"}), RECORDS)
    assert (folder / RECORD).read_bytes() == before
    record, rows = read_run(folder)
    assert record["seed"] == 42
    assert [row["id"] for row in rows] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"decoding": {"decoder": "reweigh", "beta": 0.5}}, r"decoding\.beta: 1\.1 there, 0\.5 now"),
        ({"decoding": {"decoder": "base"}}, r"decoding\.beta: 1\.1 there, none now"),
        ({"model": {"id": "m", "revision": "main"}}, r"model\.revision: none there, 'main' now"),
        ({"benchmark": {"name": "toy", "options": {"variant": "y"}}}, r"benchmark\.options\.variant"),
        (
            {"benchmark": {"name": "toy", "options": {"variant": "x", "sample": None}}},
            r"benchmark\.options\.sample: none there, 'null' now",
        ),
        (
            {"decoding": {"decoder": "reweigh", "beta": 1.1, "options": {"window": None}}},
            r"decoding\.options\.window: none there, 'null' now",
        ),
        ({"seed": 1}, "seed: 42 there, 1 now"),
    ],
)
def test_another_configuration_is_refused_by_name(
    tmp_path: Path, images: Path, changed: dict[str, Any], key: str
) -> None:
    folder = tmp_path / "run"
    open_run(folder, a_record(images), RECORDS)
    with pytest.raises(MismatchError, match=f"another {key}"):
        open_run(folder, a_record(images, **changed), RECORDS)


def test_an_altered_manifest_is_noticed(tmp_path: Path, images: Path) -> None:
    folder = tmp_path / "run"
    open_run(folder, a_record(images), RECORDS)
    text = (folder / MANIFEST).read_text()
    (folder / MANIFEST).write_text(text.replace("What?", "Who?"))
    with pytest.raises(ArtifactError, match="manifest"):
        read_run(folder)


def test_responses_without_a_record_are_not_overwritten(tmp_path: Path, images: Path) -> None:
    (tmp_path / RESPONSES).write_text('{"id": 0, "response": "x"}\n')
    with pytest.raises(ArtifactError, match=r"record\.json"):
        open_run(tmp_path, a_record(images), RECORDS)


def test_a_beginning_that_was_cut_begins_again(tmp_path: Path, images: Path) -> None:
    open_run(tmp_path, a_record(images), RECORDS)
    (tmp_path / RECORD).unlink()
    open_run(tmp_path, a_record(images), RECORDS)
    assert len(read_run(tmp_path)[1]) == 4


def test_a_manifest_of_somebody_else_is_not_replaced(tmp_path: Path, images: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"mine": 77}\n')
    with pytest.raises(ArtifactError, match="another run"):
        open_run(tmp_path, a_record(images), RECORDS)
    assert (tmp_path / MANIFEST).read_text() == '{"mine": 77}\n'


def test_an_altered_record_is_noticed(tmp_path: Path, images: Path) -> None:
    open_run(tmp_path, a_record(images), RECORDS)
    text = (tmp_path / RECORD).read_text()
    (tmp_path / RECORD).write_text(text.replace('"seed": 42', '"seed": 43'))
    for read in (read_run, run_owner, lambda folder: open_run(folder, a_record(images), RECORDS)):
        with pytest.raises(ArtifactError, match=r"record\.json"):
            read(tmp_path)


def test_a_run_of_an_older_version_says_what_can_be_done(tmp_path: Path) -> None:
    write_json(tmp_path / RECORD, {"schema": 1, "benchmark": {"name": "toy"}})
    with pytest.raises(ArtifactError, match="older") as caught:
        read_run(tmp_path)
    assert "response file" in str(caught.value)


def test_answers_belong_to_their_record_wherever_its_files_lie(tmp_path: Path, images: Path) -> None:
    for name, changed in (("one", {}), ("moved", {"folders": {"data": "there"}}), ("other", {"seed": 7})):
        open_run(tmp_path / name, a_record(images, **changed), RECORDS)
    assert run_owner(tmp_path / "one") == run_owner(tmp_path / "moved") != run_owner(tmp_path / "other")
    assert run_owner(tmp_path) == ""


def test_images_are_found_near_their_place(images: Path, tmp_path: Path) -> None:
    assert find_image(tmp_path, "images/0.png") == images / "0.png"
    assert find_image(tmp_path, "0.png") == images / "0.png"
    assert find_image(images, "val2014/0.png") == images / "0.png"
    (tmp_path / "outer").mkdir()
    images.rename(tmp_path / "outer" / "images")
    assert find_image(tmp_path, "0.png") == tmp_path / "outer" / "images" / "0.png"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "[1].png").write_bytes(b"")
    with pytest.raises(InputError, match="twice"):
        find_image(tmp_path, "[1].png")
    with pytest.raises(InputError, match=r"9\.png"):
        find_image(tmp_path, "9.png")


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "", "..", "x\0.png", "{absolute}"])
def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"x")
    (tmp_path / "images").mkdir()
    with pytest.raises(InputError, match="below"):
        find_image(tmp_path / "images", name.format(absolute=secret))


def test_first_difference_looks_inside() -> None:
    def key(one: Any, other: Any) -> str | None:
        found = first_difference(one, other, ignore=NOT_COMPARED)
        return found and found.key

    assert key({"a": {"b": [1]}}, {"a": {"b": [1]}}) is None
    assert key({"a": {"b": [1]}}, {"a": {"b": [2]}}) == "a.b"
    assert key({"a": {"b": 1}}, {"a": 1}) == "a"
    assert key({}, {"x": None}) is None
    assert key({}, {"x": 0}) == "x"
    assert key({"places": 1}, {"places": 2}) is None
    assert key({"a": {"places": 1}}, {"a": {"places": 2}}) == "a.places"


def test_two_processes_cannot_share_a_folder(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from reweigh.files.artifacts import only_one\n"
        "with only_one(Path(sys.argv[1])): print('in')"
    )
    with only_one(tmp_path):
        other = subprocess.run(
            [sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False
        )
        assert "process" in other.stderr
    free = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert free.stdout == "in\n"
