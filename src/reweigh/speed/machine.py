"""Describe the machine that figures belong to, and read its memory where the system reports it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reweigh.memory import peak_bytes, reset_peak, resident_bytes
from reweigh.provenance import package_versions, versions


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, versions, threads and the moment."""
    import torch

    from reweigh.method.kernels import choose_kernel

    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "vector_instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "memory_gib": _memory_gib(),
        "load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "kernel": choose_kernel("auto", torch.device("cpu"), torch.float32).name,
        "versions": {**versions(), **package_versions(["numba"])},
    }


def setting(machine: Mapping[str, Any]) -> dict[str, Any]:
    """What must match for rounds to be pooled: everything but the time and the load."""
    return {name: value for name, value in machine.items() if name not in ("time", "load_average")}


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        found = re.search(r"model name\s*:\s*(.+)", listing.read_text())
        if found:
            return found.group(1)
    return platform.processor() or "unknown"


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def peak_mib(run: Callable[[], object]) -> float | None:
    """Peak resident memory of ``run`` above what was held before it, in MiB; ``None`` where it is not reported."""
    release_memory()
    before = resident_bytes() if reset_peak() else None
    run()
    peak = peak_bytes()
    return None if before is None or peak is None else max(0.0, (peak - before) / 2**20)


def release_memory() -> None:
    """Return freed memory to the system, so that it does not hide what this run needs."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)
