"""Sealed pages, tensor files and rows: what was written comes back; a changed bit or another's file is refused and named."""

from __future__ import annotations

import numpy as np
import pytest

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import write_tensors
from reweigh.files.seals import (
    read_sealed,
    read_sealed_tensors,
    write_sealed,
    write_sealed_tensors,
)

ARRAYS = {
    "values": np.linspace(0, 1, 7, dtype=np.float32).reshape(1, 7),
    "token": np.arange(7, dtype=np.int32),
}
PAGE = {"key": "k", "images": ["ä", "b"]}


def test_sealed_tensors_come_back_with_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_sealed_tensors(tmp_path / name, ARRAYS, PAGE)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    arrays, page = read_sealed_tensors(tmp_path / "a")
    assert page == PAGE
    assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)


def test_every_flipped_bit_of_a_tensor_file_is_noticed(tmp_path):
    path = tmp_path / "part"
    write_sealed_tensors(path, ARRAYS, PAGE)
    data = path.read_bytes()
    refused = 0
    for byte in range(len(data)):
        for bit in (0, 5):
            path.write_bytes(data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :])
            try:
                arrays, page = read_sealed_tensors(path)
            except ArtifactError as error:
                refused += str(path) in str(error)
            else:  # white space of the header says nothing
                assert page == PAGE
                assert all(np.array_equal(arrays[name], ARRAYS[name]) for name in ARRAYS)
    assert refused > 1.9 * len(data)


def test_a_tensor_file_without_a_seal_is_refused(tmp_path):
    write_tensors(tmp_path / "x", ARRAYS)
    with pytest.raises(ArtifactError, match="page_sha256"):
        read_sealed_tensors(tmp_path / "x")


def test_sealed_pages_come_back(tmp_path):
    page = {"b0": 0.1 + 0.2, "name": "naïve", "list": [1, None]}
    write_sealed(tmp_path / "p.json", page)
    assert read_sealed(tmp_path / "p.json") == page


def test_no_changed_byte_of_a_sealed_page_goes_unseen(tmp_path):
    path = tmp_path / "p.json"
    page = {"b0": 1e-05, "layer": 29, "on": True, "name": "ab\u00e9"}
    write_sealed(path, page)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for byte in {whole[position] ^ 1, whole[position] ^ 0x80, ord("9")}:
            altered = bytearray(whole)
            altered[position] = byte
            path.write_bytes(bytes(altered))
            try:
                found = read_sealed(path)
            except ArtifactError:
                continue
            assert found == page  # white space is not content


@pytest.mark.parametrize("text", ["[]", "3", "{}", '{"b0": 1}', '{"b0": NaN, "page_sha256": "x"}'])
def test_a_page_without_a_true_seal_is_refused(tmp_path, text):
    path = tmp_path / "p.json"
    path.write_text(text)
    with pytest.raises(ArtifactError, match=r"p.json"):
        read_sealed(path)
