"""A bounded store in memory, and the keys under which engines keep the evidence of pictures in it."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reweigh.errors import InputError

LIMIT = 256 << 20
"""Bytes that a store holds by default; evidence of V tokens takes 4 V (375 KiB for three layers of V = 32,000)."""


def prompt_keys(tokens: Sequence[int], images: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """Return the keys of a prompt up to the end of each image; ``images`` are (identifier, offset, length) in order.

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

    def __init__(self, limit: int = LIMIT) -> None:
        if limit < 0:
            raise InputError(f"a limit of {limit} bytes is negative", hint="give 0 to keep nothing")
        self.limit = limit
        self.bytes = 0
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""
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
