"""The benchmarks' files: downloaded completely or not at all, checked, unpacked safely."""

from __future__ import annotations

from reweigh.benchmarks.data.dataset import Dataset, File, dataset, datasets
from reweigh.benchmarks.data.store import check, data_root, folder_of, get, listing, state

__all__ = [
    "Dataset",
    "File",
    "check",
    "data_root",
    "dataset",
    "datasets",
    "folder_of",
    "get",
    "listing",
    "state",
]
