"""The benchmarks' own files: where they come from, fetched whole or not at all, checked, unpacked safely."""

from __future__ import annotations

from reweigh.benchmarks.data.catalogue import CATALOGUE, Dataset, File, dataset
from reweigh.benchmarks.data.store import check, data_root, folder_of, get, state

__all__ = ["CATALOGUE", "Dataset", "File", "check", "data_root", "dataset", "folder_of", "get", "state"]
