"""A bounded store of evidence vectors, in memory and in a folder.

Tuning, ablation and evaluation decode the same images many times; their evidence is measured once. Both stores drop
what was used longest ago. A file that is cut or altered is dropped, never trusted. Knows nothing of how evidence is
measured, nor what its keys are made of.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.artifacts import read_tensors, write_tensors
from reweigh.errors import ArtifactError, InputError

MEMORY_BYTES = 256 << 20
DISK_BYTES = 4 << 30
PLANES = "dmrr"


class EvidenceCache:
    """A bounded store of float32 evidence vectors, safe to share among threads and (its folder) processes.

    A vector of V tokens takes 4 V bytes in memory (375 KiB for three layers of V = 32,000) and less on the disk.

    Args:
        memory_bytes: Bound of the values held in memory.
        folder: Where vectors outlive the process; ``None`` keeps them in memory only.
        disk_bytes: Bound of the folder's files.
    """

    def __init__(
        self,
        *,
        memory_bytes: int = MEMORY_BYTES,
        folder: str | Path | None = None,
        disk_bytes: int = DISK_BYTES,
    ) -> None:
        if memory_bytes < 0 or disk_bytes < 0:
            raise InputError(
                f"cache bounds are {memory_bytes} and {disk_bytes} bytes; they must not be negative"
            )
        self.memory_bytes = memory_bytes
        self.disk_bytes = disk_bytes
        self.folder = None if folder is None else Path(folder)
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Tensor] = OrderedDict()
        self._bytes = 0
        self._on_disk = sum(size for _, size, _ in self._files())

    @property
    def bytes(self) -> int:
        """Bytes of the values held in memory."""
        return self._bytes

    def get(self, key: str) -> Tensor | None:
        """A copy of the vector of ``key``, or ``None``."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                self.hits += 1
                return held.clone()
        read = self._read(key)
        with self._lock:
            self.hits += read is not None
            self.misses += read is None
        if read is None:
            return None
        self._hold(key, read)
        return read.clone()

    def put(self, key: str, values: Tensor) -> None:
        """Keep a vector: float32, flat, reciprocal ranks in [0, 1]."""
        if not _plausible(values):
            raise InputError(
                f"evidence must be flat float32 in [0, 1], not {values.dtype} {tuple(values.shape)}"
            )
        own = values.detach().cpu().clone()
        self._hold(key, own)
        self._write(key, own)

    def _hold(self, key: str, values: Tensor) -> None:
        with self._lock:
            old = self._held.pop(key, None)
            self._bytes -= 0 if old is None else old.nbytes
            if values.nbytes > self.memory_bytes:
                return
            self._held[key] = values
            self._bytes += values.nbytes
            while self._bytes > self.memory_bytes:
                _, dropped = self._held.popitem(last=False)
                self._bytes -= dropped.nbytes

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / key[:2] / f"{key}.safetensors"

    def _read(self, key: str) -> Tensor | None:
        path = self._path(key)
        if path is None or not path.is_file():
            return None
        try:
            values = _unpacked(read_tensors(path))
        except (ArtifactError, OSError, KeyError, ValueError, zlib.error):
            values = None
        if values is None or not _plausible(values):
            path.unlink(missing_ok=True)  # cut or altered: measured again by the caller
            return None
        with contextlib.suppress(OSError):  # a read-only folder still serves
            os.utime(path)
        return values

    def _write(self, key: str, values: Tensor) -> None:
        path = self._path(key)
        if path is None:
            return
        write_tensors(path, _packed(values))
        with self._lock:
            self._on_disk += path.stat().st_size
            if self._on_disk > self.disk_bytes:
                self._shrink()

    def _files(self) -> list[tuple[float, int, Path]]:
        """Time of last use, size and path of every file, the oldest first; other processes may remove some."""
        found = []
        for path in self.folder.glob("??/*.safetensors") if self.folder is not None else ():
            with contextlib.suppress(FileNotFoundError):
                state = path.stat()
                found.append((state.st_mtime, state.st_size, path))
        return sorted(found)

    def _shrink(self) -> None:
        """Remove files used longest ago until a tenth of the bound is free, so that this runs seldom."""
        files = self._files()
        self._on_disk = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._on_disk <= 0.9 * self.disk_bytes:
                return
            path.unlink(missing_ok=True)
            self._on_disk -= size


def _plausible(values: Tensor) -> bool:
    if values.dtype != torch.float32 or values.ndim != 1:
        return False
    return values.numel() == 0 or bool((values >= 0).all() and (values <= 1).all())


def _packed(values: Tensor) -> dict[str, Any]:
    """Byte planes, deflated: exponents repeat, and the checksum tells an altered file."""
    planes = values.numpy().view(np.uint8).reshape(-1, 4).T.tobytes()
    return {PLANES: np.frombuffer(zlib.compress(planes, 1), dtype=np.uint8)}


def _unpacked(tensors: dict[str, Any]) -> Tensor:
    planes = np.frombuffer(zlib.decompress(tensors[PLANES].tobytes()), dtype=np.uint8)
    return torch.from_numpy(planes.reshape(4, -1).T.copy(order="C").view(np.float32).ravel())
