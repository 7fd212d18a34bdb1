"""Find a benchmark's files in the user's copy."""

from __future__ import annotations

from pathlib import Path

from reweigh.errors import InputError


def find_files(data_dir: Path, pattern: str) -> list[Path]:
    """List the files of a name pattern in a folder, or else in its subfolders, at most two levels down."""
    for prefix in ("", "*/", "*/*/"):
        if found := sorted(path for path in data_dir.glob(prefix + pattern) if path.is_file()):
            return found
    return []


def require_file(data_dir: Path, name: str, *, benchmark: str) -> Path:
    """Find one file by name, or say how to get it."""
    found = find_files(data_dir, name)
    if not found:
        raise InputError(
            f"{name} is not in {data_dir}",
            hint=f"fetch it with `reweigh data {benchmark}`, or give the folder of your own copy",
        )
    return found[0]
