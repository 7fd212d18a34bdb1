from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from reweigh.errors import InputError
from reweigh.files.artifacts import only_one
from reweigh.lab.runs.record import (
    find_image,
    make_record,
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
    for key in ("questions_sha256", "prompts_sha256", "images_sha256"):
        assert len(record[key]) == 64
    assert {"python", "packages"} <= set(record["environment"])
    assert {"reweigh", "numpy", "pillow"} <= set(environment()["packages"])
    json.dumps(record)


def test_everything_that_matters_changes_a_hash(images: Path) -> None:
    base = a_record(images)
    prompted = [Record(id=r.id, image=r.image, prompt="Why?", max_new_tokens=8) for r in RECORDS]
    assert a_record(images, prompted)["prompts_sha256"] != base["prompts_sha256"]
    limited = [Record(id=r.id, image=r.image, prompt=r.prompt, max_new_tokens=9) for r in RECORDS]
    assert a_record(images, limited)["questions_sha256"] != base["questions_sha256"]
    assert a_record(images, RECORDS[::-1])["questions_sha256"] != base["questions_sha256"]
    Image.new("RGB", (8, 8), (9, 9, 9)).save(images / "1.png")
    assert a_record(images)["images_sha256"] != base["images_sha256"]
    assert a_record(images)["questions_sha256"] == base["questions_sha256"]


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
        found = first_difference(one, other, ignore={"places"})
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
