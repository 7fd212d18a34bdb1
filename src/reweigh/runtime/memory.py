"""A bounded store of evidence vectors, in memory and in a folder.

Tuning, ablation and evaluation decode the same images many times; their evidence is measured once. Both stores drop
the least recently used values. A file carries its key and the hash of its content: a cut, altered or renamed one is
dropped, never trusted. If the folder fails (full, read-only, gone), warn once and keep vectors in memory. Knows
nothing of how evidence is measured or what its keys are made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from reweigh.errors import ArtifactError, InputError
from reweigh.files.artifacts import LEFTOVER
from reweigh.files.seals import read_sealed_tensors, write_sealed_tensors

MEMORY_BYTES = 256 << 20
DISK_BYTES = 4 << 30
PLANES = "dmrr"
ABANDONED_SECONDS = 3600
"""Age from which an unfinished file is considered abandoned; a younger one may still be written."""


def prompt_keys(tokens: Sequence[int], images: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """Keys of a prompt up to the end of each image; ``images`` are (identifier, offset, length) in their order.

    Evidence depends on the image and on what comes before it, so equal keys mean equal evidence, for every engine.
    """
    digest, start, keys = hashlib.sha256(), 0, []
    for identifier, offset, length in images:
        end = max(start, offset + length)
        digest.update(np.asarray(tokens[start:end], dtype=np.int64).tobytes())
        digest.update(repr((identifier, offset, length)).encode())
        keys.append(digest.hexdigest())
        start = end
    return tuple(keys)


class Memory:
    """Values in memory, bounded by their bytes; drops the least recently used. Safe to share among threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str) -> Any:
        """The value of ``key``, or ``None``."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]

    def put(self, key: str, value: Any, size: int) -> None:
        """Keep a value of ``size`` bytes, unless it alone is more than the limit."""
        with self._lock:
            self.bytes -= self._held.pop(key, (None, 0))[1]
            if size > self.limit:
                return
            self._held[key] = (value, size)
            self.bytes += size
            while self.bytes > self.limit:
                self.bytes -= self._held.popitem(last=False)[1][1]


class EvidenceCache:
    """A bounded store of float32 evidence vectors, safe to share among threads and (its folder) processes.

    A vector of V tokens takes 4 V bytes in memory (375 KiB for three layers of V = 32,000) and less on the disk.

    Args:
        memory_bytes: Bound of the values held in memory.
        folder: Where vectors outlive the process; ``None`` keeps them in memory only, and so does a folder that
            cannot be written, with one warning.
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
        self.memory = Memory(memory_bytes)
        self.disk_bytes = disk_bytes
        self.folder = None if folder is None else Path(folder)
        self.hits = 0
        self.misses = 0
        self._lock = threading.Lock()
        self._warned = False
        self._on_disk = 0
        self._survey()

    @property
    def bytes(self) -> int:
        """Bytes of the values held in memory."""
        return self.memory.bytes

    def get(self, key: str) -> Tensor | None:
        """A copy of the vector of ``key``, or ``None``."""
        found: Tensor | None = self.memory.get(key)
        if found is None:
            found = self._read(key)
            if found is not None:
                self.memory.put(key, found, found.nbytes)
        with self._lock:
            self.hits += found is not None
            self.misses += found is None
        return None if found is None else found.clone()

    def put(self, key: str, values: Tensor) -> None:
        """Keep a vector: float32, flat, finite."""
        if not _plausible(values):
            raise InputError(
                f"evidence must be flat finite float32, not {values.dtype} {tuple(values.shape)}"
            )
        own = values.detach().cpu().clone()
        self.memory.put(key, own, own.nbytes)
        self._write(key, own)

    def _path(self, key: str) -> Path | None:
        return None if self.folder is None else self.folder / key[:2] / f"{key}.safetensors"

    def _read(self, key: str) -> Tensor | None:
        path = self._path(key)
        if path is None:
            return None
        try:
            if not path.is_file():
                return None
            tensors, page = read_sealed_tensors(path)
            values = _unpacked(tensors) if page.get("key") == key else None
        except OSError:  # out of reach, or just removed by another process
            return None
        except (ArtifactError, KeyError, ValueError, zlib.error):
            values = None
        if values is None or not _plausible(values):
            self._remove(path)  # cut or altered: measured again by the caller
            return None
        with contextlib.suppress(OSError):  # a read-only folder still serves
            os.utime(path)
        return values

    def _write(self, key: str, values: Tensor) -> None:
        path = self._path(key)
        if path is None:
            return
        try:
            write_sealed_tensors(path, _packed(values), {"key": key})
        except ArtifactError as error:
            self._warn(error.message)
            return
        with self._lock:
            with contextlib.suppress(OSError):  # another process may have removed it already
                self._on_disk += path.stat().st_size
            if self._on_disk > self.disk_bytes:
                self._shrink()

    def _files(self) -> Iterator[Path]:
        """Files of this cache, finished or not; a folder's other files are not its own."""
        if self.folder is None:
            return
        for pattern in ("??/*.safetensors", f"??/.*{LEFTOVER}"):
            with contextlib.suppress(OSError):
                for path in self.folder.glob(pattern):
                    if path.name.lstrip(".").startswith(path.parent.name):
                        yield path

    def _survey(self) -> list[tuple[float, int, Path]]:
        """Count the bytes on the disk and drop what killed writers left.

        Returns:
            Time of last use, size and path of every vector, the oldest first.
        """
        self._on_disk = 0
        vectors = []
        for path in self._files():
            try:
                state = path.stat()
            except OSError:  # removed by another process
                continue
            finished = path.suffix != LEFTOVER
            if not finished and time.time() - state.st_mtime > ABANDONED_SECONDS and self._remove(path):
                continue
            self._on_disk += state.st_size
            if finished:
                vectors.append((state.st_mtime, state.st_size, path))
        return sorted(vectors)

    def _shrink(self) -> None:
        """Remove the least recently used files until a tenth of the bound is free, so that this runs seldom."""
        for _, size, path in self._survey():
            if self._on_disk <= 0.9 * self.disk_bytes:
                return
            if self._remove(path):
                self._on_disk -= size

    def _remove(self, path: Path) -> bool:
        """Remove a file; False, after a warning, if the folder does not allow it."""
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            self._warn(f"{path} cannot be removed ({error.strerror or error})")
            return False
        return True

    def _warn(self, problem: str) -> None:
        """Warn about the folder once; a long run would repeat it at every image."""
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"evidence cache: {problem}; evidence is measured and kept in memory all the same",
                stacklevel=2,
            )


def _plausible(values: Tensor) -> bool:
    if values.dtype != torch.float32 or values.ndim != 1:
        return False
    return bool(torch.isfinite(values).all())


def _packed(values: Tensor) -> dict[str, Any]:
    """Byte planes, deflated: exponents repeat."""
    planes = values.numpy().view(np.uint8).reshape(-1, 4).T.tobytes()
    return {PLANES: np.frombuffer(zlib.compress(planes, 1), dtype=np.uint8)}


def _unpacked(tensors: dict[str, Any]) -> Tensor:
    planes = np.frombuffer(zlib.decompress(tensors[PLANES].tobytes()), dtype=np.uint8)
    return torch.from_numpy(planes.reshape(4, -1).T.copy(order="C").view(np.float32).ravel())
