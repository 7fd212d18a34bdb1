"""Benchmarks: records to answer, and scorers from answers to per-item results and a summary.

Nothing here imports torch or knows a model: generation and scoring are apart.
"""

from __future__ import annotations

from reweigh.benchmarks.base import (
    BENCHMARKS,
    Benchmark,
    Item,
    Metric,
    Record,
    Response,
    Summary,
    read_responses,
)

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Item",
    "Metric",
    "Record",
    "Response",
    "Summary",
    "read_responses",
]
