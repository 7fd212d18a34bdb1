"""What an answer costs: time per generated token and peak memory, measured the same way for every method.

On an accelerator: wall time with the device synchronised, and the peak of allocated memory. On a CPU: CPU time of this
process, which waiting for a core does not touch, and the peak of resident memory, which knows of the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from reweigh.memory import peak_bytes, reset_peak


@dataclass(frozen=True)
class Cost:
    """One answered batch: seconds, tokens generated, peak memory in bytes where the system tells."""

    seconds: float
    tokens: int
    peak: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


@dataclass
class Meter:
    """Filled in when the measured block ends."""

    seconds: float = 0.0
    peak: int | None = None


@contextmanager
def measured(device: Any) -> Iterator[Meter]:
    """Measure a block on the device that the model is on."""
    import torch

    meter = Meter()
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
    else:
        reset_peak()
    clock = time.perf_counter if device.type != "cpu" else time.process_time
    begin = clock()
    yield meter
    if cuda:
        torch.cuda.synchronize(device)
    meter.seconds = clock() - begin
    meter.peak = int(torch.cuda.max_memory_allocated(device)) if cuda else peak_bytes()


@dataclass(frozen=True)
class Total:
    """All batches of one method."""

    seconds_per_token: float
    peak: int | None
    tokens: int


def total(costs: Sequence[Cost]) -> Total | None:
    """Time over tokens of all batches, and the highest peak; ``None`` if nothing was generated."""
    tokens = sum(cost.tokens for cost in costs)
    if not tokens:
        return None
    peaks = [cost.peak for cost in costs if cost.peak is not None]
    return Total(sum(cost.seconds for cost in costs) / tokens, max(peaks) if peaks else None, tokens)
