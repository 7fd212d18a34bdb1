"""Benchmarks: records to answer, and scorers from answers to per-item results and a summary.

Nothing here imports torch or a model: generation and scoring are separate.
"""

from __future__ import annotations

from reweigh.lab.tasks.base import (
    BENCHMARKS,
    Benchmark,
    Item,
    MetricInfo,
    Record,
    Response,
    Summary,
    find_benchmark,
    read_responses,
)
from reweigh.lab.tasks.open import open_benchmark

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Item",
    "MetricInfo",
    "Record",
    "Response",
    "Summary",
    "find_benchmark",
    "open_benchmark",
    "read_responses",
]
