"""The evidence cache: exact values, bounds, damage, threads, and a key that misses nothing."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from reweigh.errors import InputError
from reweigh.measure.cache import EvidenceCache, evidence_key


def vector(seed: int, size: int = 100) -> Tensor:
    return 1 / (1 + 50 * torch.rand(size, generator=torch.Generator().manual_seed(seed)))


def key_of(**changed: Any) -> str:
    given: dict[str, Any] = {
        "pixels": torch.zeros(1, 3, 4, 4),
        "prefix": [1, 2, 3],
        "layer": 2,
        "model": "weights",
        "dtype": "float32",
        "chunk": 288,
        "tokens": None,
    }
    return evidence_key(**{**given, **changed})


def test_the_key_changes_with_everything_evidence_depends_on() -> None:
    pixel = torch.zeros(1, 3, 4, 4)
    pixel[0, 0, 0, 0] = 1e-7
    keys = [
        key_of(),
        key_of(pixels=pixel),
        key_of(pixels=torch.zeros(3, 4, 4)),
        key_of(pixels=torch.zeros(1, 3, 4, 4, dtype=torch.bfloat16)),
        key_of(pixels={"pixels": torch.zeros(1, 3, 4, 4), "grid": torch.tensor([[1, 2, 2]])}),
        key_of(prefix=[1, 2]),
        key_of(layer=3),
        key_of(model="others"),
        key_of(dtype="bfloat16"),
        key_of(chunk=64),
        key_of(tokens=[]),
        key_of(tokens=[5]),
    ]
    assert len(set(keys)) == len(keys)
    assert key_of() == key_of(prefix=torch.tensor([1, 2, 3]))


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


def test_measured_once_then_served() -> None:
    cache, calls = EvidenceCache(), []

    def measure() -> Tensor:
        calls.append(1)
        return vector(1)

    first = cache.fetch("k", measure)
    first.zero_()  # a caller's own copy
    assert torch.equal(cache.fetch("k", measure), vector(1))
    assert (len(calls), cache.hits, cache.misses) == (1, 1, 1)


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
    assert torch.equal(cache.fetch(key_of(), lambda: vector(1)), vector(1))
    assert path.exists()


def test_threads_share_it(tmp_path: Path) -> None:
    cache = EvidenceCache(folder=tmp_path, memory_bytes=5 * 400)

    def use(n: int) -> bool:
        seed = n % 7
        return torch.equal(cache.fetch(key_of(layer=seed), lambda: vector(seed)), vector(seed))

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
