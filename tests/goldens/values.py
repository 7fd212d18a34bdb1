"""Frozen values: how they are stored as JSON, and how found values are compared with them."""

from __future__ import annotations

import atexit
import functools
import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FROZEN = HERE / "frozen"
FOLDERS = HERE / "folders"
DIGITS = 8
"""Significant digits of a stored float."""
RTOL, ATOL = 1e-4, 1e-5
FEW = 0.02
"""Share of the values that a swapped rank may move."""


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="goldens-")
    atexit.register(folder.cleanup)
    return folder


def scratch(name: str) -> Path:
    """A folder that lives as long as this process."""
    folder = Path(_kept().name) / name
    folder.mkdir(exist_ok=True)
    return folder


def plain(value: Any) -> Any:
    """The value as it is stored: JSON types only, floats rounded, no NaN or infinity."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} cannot be frozen")


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its path, e.g. ("rows/0/value", 8.3)."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        if not value:
            yield name, "empty"
        for key, one in pairs:
            yield from flat(one, f"{name}/{key}" if name else str(key))
    else:
        yield name, value


def write(name: str, value: Any) -> Path:
    """Freeze a value."""
    file = FROZEN / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{json.dumps(key)}: {json.dumps(one)}" for key, one in plain(value).items()]
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return file


def assert_frozen(name: str, found: Any, *, flips: float = 0.0) -> None:
    """Fail with every leaf that differs: texts, tokens and counts exactly, floats within the tolerance.

    Other machines round differently, and now and then that swaps two ranks: a few floats may differ by up to ``flips``.
    """
    frozen = dict(flat(json.loads((FROZEN / f"{name}.json").read_text())))
    now = dict(flat(plain(found)))
    differences = [f"{key}: missing" for key in frozen if key not in now]
    differences += [f"{key}: not frozen" for key in now if key not in frozen]
    flipped = []
    for key in frozen.keys() & now.keys():
        if not _agree(frozen[key], now[key], ATOL):
            near = _agree(frozen[key], now[key], max(flips, ATOL))
            (flipped if near else differences).append(f"{key}: frozen {frozen[key]!r}, now {now[key]!r}")
    if len(flipped) > FEW * len(frozen):
        differences += flipped
    shown = "\n".join(sorted(differences)[:40])
    assert not differences, f"{name}: {len(differences)} of {len(frozen)} values differ\n{shown}"


def _agree(frozen: Any, now: Any, atol: float) -> bool:
    if isinstance(frozen, float) or isinstance(now, float):
        numbers = all(isinstance(one, int | float) and not isinstance(one, bool) for one in (frozen, now))
        return numbers and math.isclose(frozen, now, rel_tol=RTOL, abs_tol=atol)
    return type(frozen) is type(now) and frozen == now
