"""What can be downloaded: the datasets that the registered benchmarks declare."""

from __future__ import annotations

from reweigh.benchmarks.data.dataset import Dataset
from reweigh.errors import UnknownNameError


def datasets() -> dict[str, Dataset]:
    """All datasets by name, those of a benchmark together."""
    from reweigh.benchmarks.base import BENCHMARKS, find_benchmark

    found: dict[str, Dataset] = {}
    for name in BENCHMARKS:
        benchmark = find_benchmark(name)
        for entry in (benchmark.dataset, benchmark.image_dataset):
            if entry is not None:
                found.setdefault(entry.name, entry)
    return found


def dataset(name: str) -> Dataset:
    """Find a dataset, suggesting near names."""
    known = datasets()
    if name not in known:
        raise UnknownNameError("dataset", name, known)
    return known[name]
