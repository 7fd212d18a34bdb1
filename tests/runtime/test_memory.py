"""The evidence cache: exact values, bounds, damage, threads."""

from __future__ import annotations

import errno
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reweigh.errors import InputError
from reweigh.files.artifacts import LEFTOVER, sha256_text
from reweigh.files.seals import write_sealed_tensors
from reweigh.runtime import memory as cache_module
from reweigh.runtime.memory import EvidenceCache


def vector(seed: int, size: int = 100) -> Tensor:
    return 1 / (1 + 50 * torch.rand(size, generator=torch.Generator().manual_seed(seed)))


def key_of(layer: int = 0) -> str:
    return sha256_text(str(layer))


@settings(max_examples=30)
@given(values=st.lists(st.floats(0, 1, width=32), max_size=20))
def test_values_survive_the_disk_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, values: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("evidence")
    tensor = torch.tensor(values, dtype=torch.float32)
    EvidenceCache(folder=folder).put(key_of(), tensor)
    again = EvidenceCache(folder=folder).get(key_of())
    assert again is not None
    assert torch.equal(again, tensor)


def test_what_is_served_is_a_copy() -> None:
    cache = EvidenceCache()
    assert cache.get("k") is None
    cache.put("k", vector(1))
    for _ in range(2):
        served = cache.get("k")
        assert served is not None
        assert torch.equal(served, vector(1))
        served.zero_()
    assert (cache.hits, cache.misses) == (2, 1)


def test_memory_is_bounded_and_drops_what_was_used_longest_ago() -> None:
    cache = EvidenceCache(memory_bytes=3 * 400)
    for name in "abc":
        cache.put(name, vector(ord(name)))
    cache.get("a")
    cache.put("d", vector(4))
    assert cache.get("b") is None
    assert [cache.get(name) is not None for name in "acd"] == [True] * 3
    cache.put("d", vector(5))  # replaces, does not add
    cache.put("large", vector(6, size=1000))  # would not fit at all
    assert cache.bytes == 1200
    assert cache.get("large") is None


def test_the_papers_footprint_is_a_bound(tmp_path: Path) -> None:
    cache = EvidenceCache(folder=tmp_path)
    for layer in range(3):
        cache.put(key_of(layer=layer), vector(layer, size=32_000))
    assert cache.bytes <= 375 * 1024
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors")) <= 375 * 1024


def test_the_folder_is_bounded_and_drops_the_oldest(tmp_path: Path) -> None:
    cache = EvidenceCache(folder=tmp_path, disk_bytes=2000, memory_bytes=0)
    keys = [key_of(layer=layer) for layer in range(12)]
    for age, key in enumerate(keys):
        cache.put(key, vector(age))
        path = next(tmp_path.rglob(f"{key}*"), None)
        if path is not None:
            os.utime(path, (age, age))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors")) <= 2000
    assert cache.get(keys[0]) is None
    last = cache.get(keys[-1])
    assert last is not None
    assert torch.equal(last, vector(11))


@pytest.mark.parametrize("damage", ["cut", "flipped", "other", "empty"])
def test_a_damaged_file_is_dropped_and_measured_again(tmp_path: Path, damage: str) -> None:
    EvidenceCache(folder=tmp_path).put(key_of(), vector(1))
    (path,) = tmp_path.rglob("*.safetensors")
    data = bytearray(path.read_bytes())
    if damage == "flipped":
        data[len(data) // 2 + 40] ^= 1
    path.write_bytes({"cut": data[:-7], "flipped": data, "other": b"{}" * 50, "empty": b""}[damage])
    cache = EvidenceCache(folder=tmp_path)
    assert cache.get(key_of()) is None
    assert not path.exists()
    cache.put(key_of(), vector(1))
    assert path.exists()


def test_a_renamed_vector_is_not_taken_for_another(tmp_path: Path) -> None:
    EvidenceCache(folder=tmp_path).put(key_of(0), vector(0))
    (path,) = tmp_path.rglob("*.safetensors")
    other = tmp_path / key_of(1)[:2] / f"{key_of(1)}.safetensors"
    other.parent.mkdir(exist_ok=True)
    path.rename(other)
    cache = EvidenceCache(folder=tmp_path)
    assert cache.get(key_of(1)) is None
    assert not other.exists()


def test_threads_share_it(tmp_path: Path) -> None:
    cache = EvidenceCache(folder=tmp_path, memory_bytes=5 * 400)

    def use(n: int) -> bool:
        seed = n % 7
        found = cache.get(key_of(layer=seed))
        if found is None:
            cache.put(key_of(layer=seed), vector(seed))
        return found is None or torch.equal(found, vector(seed))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(200)))
    assert cache.bytes <= 2000
    assert cache.hits + cache.misses == 200


def no_space(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_folder_that_cannot_be_written_is_reported_once_and_memory_goes_on(tmp_path: Path) -> None:
    (tmp_path / "evidence").write_text("a file where the folder should be")
    cache = EvidenceCache(folder=tmp_path / "evidence")
    with pytest.warns(UserWarning, match="memory"):
        cache.put(key_of(0), vector(0))
    cache.put(key_of(1), vector(1))  # a second warning would be an error here
    for seed in range(2):
        held = cache.get(key_of(seed))
        assert held is not None
        assert torch.equal(held, vector(seed))
    assert cache.get(key_of(2)) is None


def test_a_full_disk_is_reported_once_and_used_again_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = EvidenceCache(folder=tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", no_space)
        with pytest.warns(UserWarning, match="No space left"):
            cache.put(key_of(0), vector(0))
        cache.put(key_of(1), vector(1))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert cache.get(key_of(0)) is not None
    cache.put(key_of(2), vector(2))
    assert EvidenceCache(folder=tmp_path).get(key_of(2)) is not None


def test_a_vector_that_another_process_removes_at_once_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = EvidenceCache(folder=tmp_path)

    def written_and_removed(path: Path, tensors: Any, page: Any) -> None:
        write_sealed_tensors(path, tensors, page)
        path.unlink()

    monkeypatch.setattr(cache_module, "write_sealed_tensors", written_and_removed)
    cache.put(key_of(), vector(1))
    assert cache.get(key_of()) is not None


def test_a_file_out_of_reach_is_measured_again_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EvidenceCache(folder=tmp_path).put(key_of(), vector(1))
    (path,) = tmp_path.rglob("*.safetensors")

    def denied(*_: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as locked:
        locked.setattr(cache_module, "read_sealed_tensors", denied)
        assert EvidenceCache(folder=tmp_path).get(key_of()) is None
        locked.setattr(Path, "is_file", denied)
        assert EvidenceCache(folder=tmp_path).get(key_of()) is None
    assert path.exists()


def test_files_that_cannot_be_removed_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    EvidenceCache(folder=tmp_path).put(key_of(0), vector(0))
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(b"damaged")
    unlink = Path.unlink

    def read_only(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise OSError(errno.EROFS, "Read-only file system")
        unlink(self, missing_ok)

    monkeypatch.setattr(Path, "unlink", read_only)
    cache = EvidenceCache(folder=tmp_path, disk_bytes=500)
    with pytest.warns(UserWarning, match="Read-only"):
        assert cache.get(key_of(0)) is None
    for seed in range(1, 5):
        cache.put(key_of(seed), vector(seed))
    assert path.exists()
    assert sum(one.stat().st_size for one in tmp_path.rglob("*.safetensors")) <= 500


def leftover(folder: Path, key: str, size: int, age: float) -> Path:
    """What a writer that was killed ``age`` seconds ago left."""
    path = folder / key[:2] / f".{key}.safetensors.abcd1234{LEFTOVER}"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)
    return path


def test_what_killed_writers_left_goes_once_it_is_old(tmp_path: Path) -> None:
    old, live = leftover(tmp_path, key_of(0), 900, 7200), leftover(tmp_path, key_of(1), 900, 60)
    other = tmp_path / "en" / f".weights.safetensors{LEFTOVER}"
    other.parent.mkdir()
    other.write_bytes(bytes(10))
    os.utime(other, (0, 0))
    cache = EvidenceCache(folder=tmp_path, disk_bytes=2500)
    assert (old.exists(), live.exists(), other.exists()) == (False, True, True)
    for seed in range(2, 8):
        cache.put(key_of(seed), vector(seed))
    assert live.exists()  # its writer may still be at work
    kept = sum(path.stat().st_size for path in tmp_path.rglob("*.safetensors"))
    assert 0 < kept <= 1600  # 2,500 less the 900 that are being written
    os.utime(live, (0, 0))
    for seed in range(8, 12):
        cache.put(key_of(seed), vector(seed))
    assert not live.exists()


def test_foreign_vectors_in_the_folder_are_not_touched(tmp_path: Path) -> None:
    model = tmp_path / "en" / "model.safetensors"
    model.parent.mkdir()
    model.write_bytes(bytes(5000))
    os.utime(model, (0, 0))
    cache = EvidenceCache(folder=tmp_path, disk_bytes=1000)
    for seed in range(6):
        cache.put(key_of(seed), vector(seed))
    assert model.exists()
    assert len(list(tmp_path.rglob("*.safetensors"))) > 1


def test_wrong_values_are_refused() -> None:
    for values in (
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(2, 2),
        torch.tensor([float("inf")]),
        torch.tensor([float("nan")]),
    ):
        with pytest.raises(InputError, match="float32"):
            EvidenceCache().put("k", values)
    with pytest.raises(InputError, match="negative"):
        EvidenceCache(memory_bytes=-1)
