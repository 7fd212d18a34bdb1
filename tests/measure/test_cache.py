"""The evidence cache: exact values, bounds, damage, threads."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reweigh.artifacts import sha256_text
from reweigh.errors import InputError
from reweigh.measure.cache import EvidenceCache


def vector(seed: int, size: int = 100) -> Tensor:
    return 1 / (1 + 50 * torch.rand(size, generator=torch.Generator().manual_seed(seed)))


def key_of(layer: int = 0) -> str:
    return sha256_text(str(layer))


@settings(deadline=None, max_examples=30)
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


def test_wrong_values_are_refused() -> None:
    for values in (
        torch.zeros(3, dtype=torch.float64),
        torch.zeros(2, 2),
        torch.tensor([2.0]),
        torch.tensor([float("nan")]),
    ):
        with pytest.raises(InputError, match="flat float32"):
            EvidenceCache().put("k", values)
    with pytest.raises(InputError, match="negative"):
        EvidenceCache(memory_bytes=-1)
