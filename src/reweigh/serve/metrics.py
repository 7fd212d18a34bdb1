"""Counters and histograms of one server, as Prometheus text. Safe to write from any thread."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from reweigh.memory import resident_bytes

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ROWS = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How often a value fell into each bucket."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str) -> Iterator[str]:
        """Its samples, buckets cumulative."""
        total = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{le="{bound}"}} {total}'
        yield f"{name}_sum {self.sum:.6f}"
        yield f"{name}_count {total}"


class Metrics:
    """What a server counts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = {}
        self._tokens = {"prompt": 0, "generated": 0}
        self._evidence = {"measured": 0, "recalled": 0}
        self._left = 0
        self._seconds = Histogram(SECONDS)
        self._first = Histogram(SECONDS)
        self._batches = Histogram(ROWS)
        self.gauges: dict[str, tuple[str, Callable[[], float | None]]] = {
            "process_resident_memory_bytes": ("Resident memory.", resident_bytes)
        }

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        with self._lock:
            self._requests[path, status] = self._requests.get((path, status), 0) + 1
            self._seconds.add(seconds)

    def tokens(self, *, prompt: int = 0, generated: int = 0) -> None:
        """Count tokens."""
        with self._lock:
            self._tokens["prompt"] += prompt
            self._tokens["generated"] += generated

    def evidence(self, *, measured: int, recalled: int) -> None:
        """Count pictures whose evidence was measured or recalled."""
        with self._lock:
            self._evidence["measured"] += measured
            self._evidence["recalled"] += recalled

    def first_token(self, seconds: float) -> None:
        """Count the time to a first token."""
        with self._lock:
            self._first.add(seconds)

    def batch(self, rows: int) -> None:
        """Count a batch."""
        with self._lock:
            self._batches.add(rows)

    def left(self) -> None:
        """Count a client that left before its answer was whole."""
        with self._lock:
            self._left += 1

    def text(self) -> str:
        """All of it in Prometheus' text format."""
        with self._lock:
            lines = [
                *_head("reweigh_requests_total", "counter", "Requests by path and status."),
                *(
                    f'reweigh_requests_total{{path="{path}",status="{status}"}} {count}'
                    for (path, status), count in sorted(self._requests.items())
                ),
                *_head("reweigh_tokens_total", "counter", "Tokens read and written."),
                *(f'reweigh_tokens_total{{kind="{kind}"}} {n}' for kind, n in self._tokens.items()),
                *_head("reweigh_evidence_total", "counter", "Rows whose evidence was measured or recalled."),
                *(f'reweigh_evidence_total{{source="{name}"}} {n}' for name, n in self._evidence.items()),
                *_head("reweigh_left_total", "counter", "Clients that left before their answer was whole."),
                f"reweigh_left_total {self._left}",
                *_head("reweigh_request_seconds", "histogram", "Time of requests."),
                *self._seconds.lines("reweigh_request_seconds"),
                *_head("reweigh_first_token_seconds", "histogram", "Time to the first text of an answer."),
                *self._first.lines("reweigh_first_token_seconds"),
                *_head("reweigh_batch_rows", "histogram", "Answers decoded together."),
                *self._batches.lines("reweigh_batch_rows"),
            ]
        for name, (help_text, read) in self.gauges.items():
            value = read()
            if value is not None:
                lines += [*_head(name, "gauge", help_text), f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"
