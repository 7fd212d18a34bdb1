"""The benchmarks' files: downloaded completely or not at all, checked, unpacked safely."""

from __future__ import annotations

from reweigh.benchmarks.data.fetch import File
from reweigh.benchmarks.data.store import (
    Dataset,
    check,
    data_root,
    describe,
    find_files,
    folder_of,
    get,
    require_file,
    state,
)

__all__ = [
    "Dataset",
    "File",
    "check",
    "data_root",
    "describe",
    "find_files",
    "folder_of",
    "get",
    "require_file",
    "state",
]
