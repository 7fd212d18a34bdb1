"""Sealed folders: what was written comes back with the same bytes; a changed, missing or foreign file is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from reweigh.errors import ArtifactError
from reweigh.files.folder import SealedFolder
from reweigh.files.seals import write_sealed

KIND = SealedFolder(
    kind="sample",
    page="sample.json",
    numbers="sample.safetensors",
    arrays=("values",),
    fields={"name": str, "rows": int},
    schema=2,
)
PAGE = {"schema_version": 2, "name": "ä", "rows": 3}
ARRAYS = {"values": np.arange(3.0), "more": np.arange(2, dtype=np.int32)}


def files(folder):
    return folder / KIND.page, folder / KIND.numbers


@pytest.fixture
def folder(tmp_path):
    return KIND.write(tmp_path / "a", PAGE, ARRAYS)


def test_what_was_written_comes_back(folder, tmp_path):
    page, arrays = KIND.read(folder)
    assert {**PAGE, "numbers_sha256": page["numbers_sha256"]} == page
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    KIND.write(tmp_path / "b", PAGE, ARRAYS)
    for one, other in zip(files(folder), files(tmp_path / "b"), strict=True):
        assert one.read_bytes() == other.read_bytes()
    assert KIND.is_in(folder)
    assert not KIND.is_in(tmp_path)


@pytest.mark.parametrize("which", [0, 1])
def test_every_flipped_byte_is_refused(folder, which):
    path = files(folder)[which]
    data = path.read_bytes()
    blanks = 0
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            found = KIND.read(folder)[0]
        except ArtifactError:
            continue
        blanks += 1  # white space of the page
        assert found["name"] == PAGE["name"]
    assert blanks == 0 or which == 0


def test_a_missing_file_is_named(folder, tmp_path):
    with pytest.raises(ArtifactError, match="sample"):
        KIND.read(tmp_path)
    (folder / "sample.safetensors").unlink()
    with pytest.raises(ArtifactError, match="missing"):
        KIND.read(folder)


def test_numbers_of_another_folder_are_refused(folder, tmp_path):
    other = KIND.write(tmp_path / "b", PAGE, {"values": np.arange(3.0) + 1})
    (folder / "sample.safetensors").write_bytes((other / "sample.safetensors").read_bytes())
    with pytest.raises(ArtifactError, match="altered"):
        KIND.read(folder)


@pytest.mark.parametrize(
    ("page", "word"),
    [({"schema_version": 99}, "schema"), ({"schema_version": True}, "schema"), ({"name": 3}, "name")],
)
def test_a_page_of_another_kind_is_refused_under_a_right_seal(folder, page, word):
    known = {key: value for key, value in json.loads((folder / "sample.json").read_text()).items()}
    known.pop("page_sha256")
    write_sealed(folder / "sample.json", {**known, **page})
    with pytest.raises(ArtifactError, match=word):
        KIND.read(folder)


def test_missing_arrays_are_refused(tmp_path):
    KIND.write(tmp_path, PAGE, {"other": np.zeros(1)})
    with pytest.raises(ArtifactError, match="values"):
        KIND.read(tmp_path)
