"""Peak memory of this process, where the system reports it (Linux)."""

from __future__ import annotations

import re
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def reset_peak() -> bool:
    """Set the high-water mark to what is resident now; False where the system does not allow it."""
    try:
        _RESET.write_text("5")
    except OSError:
        return False
    return True


def resident_bytes() -> int | None:
    """Bytes that are resident now."""
    return _read("VmRSS")


def peak_bytes() -> int | None:
    """The high-water mark of resident bytes."""
    return _read("VmHWM")


def _read(name: str) -> int | None:
    try:
        found = re.search(rf"{name}:\s*(\d+) kB", _STATUS.read_text())
    except OSError:
        return None
    return None if found is None else int(found.group(1)) * 1024
