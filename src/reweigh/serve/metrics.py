"""The server's metrics for Prometheus; thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from reweigh.memory import resident_bytes

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ROWS = (1, 2, 4, 8, 16, 32, 64)
FACTS = ("version", "model", "layer", "beta", "table_sha256", "torch", "transformers")
"""Facts of a served model that are labels of ``reweigh_build_info``."""


class Metrics:
    """The counters and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry()
        self._requests = self._counter("requests", "Requests by path and status.", "path", "status")
        self._tokens = self._counter("tokens", "Tokens read and written.", "kind")
        self._evidence = self._counter("evidence", "Rows whose evidence was measured or recalled.", "source")
        self._answers = self._counter("answers", "Answers by decoder.", "decoder")
        self._changed = self._counter(
            "changed_words", "Steps at which the edit put another token first, by decoder.", "decoder"
        )
        self._left = self._counter("left", "Clients that disconnected before their answer was complete.")
        self._seconds = self._histogram("request_seconds", "Time of requests by path.", SECONDS, "path")
        self._first = self._histogram("first_token_seconds", "Time to the first text of an answer.", SECONDS)
        self._batches = self._histogram("batch_rows", "Answers decoded together.", ROWS)
        self._build = Gauge("reweigh_build_info", "What is served; always 1.", FACTS, registry=self._registry)
        for kind in ("prompt", "generated"):
            self._tokens.labels(kind)
        for source in ("measured", "recalled"):
            self._evidence.labels(source)
        if resident_bytes() is not None:
            self.gauge("process_resident_memory_bytes", "Resident memory.", lambda: resident_bytes() or 0)

    def gauge(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Report what ``read`` returns whenever the metrics are asked for."""
        Gauge(name, documentation, registry=self._registry).set_function(read)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def tokens(self, *, prompt: int = 0, generated: int = 0) -> None:
        """Count tokens."""
        self._tokens.labels("prompt").inc(prompt)
        self._tokens.labels("generated").inc(generated)

    def answers(self, decoder: str, count: int, changed: int) -> None:
        """Count answers of one decoder, and the words it changed."""
        self._answers.labels(decoder).inc(count)
        self._changed.labels(decoder).inc(changed)

    def build(self, facts: Mapping[str, Any]) -> None:
        """Report what is served, from now on."""
        self._build.clear()
        self._build.labels(*(str(facts[name]) for name in FACTS)).set(1)

    def evidence(self, *, measured: int, recalled: int) -> None:
        """Count pictures whose evidence was measured or recalled."""
        self._evidence.labels("measured").inc(measured)
        self._evidence.labels("recalled").inc(recalled)

    def first_token(self, seconds: float) -> None:
        """Record the time to a first token."""
        self._first.observe(seconds)

    def batch(self, rows: int) -> None:
        """Record the size of a batch."""
        self._batches.observe(rows)

    def left(self) -> None:
        """Count a client that left before its answer was complete."""
        self._left.inc()

    def totals(self) -> dict[str, int]:
        """Requests, answers and changed words so far, for the last line of the log."""
        counters = {"requests": self._requests, "answers": self._answers, "changed": self._changed}
        return {
            name: round(sum(one.value for one in next(iter(counter.collect())).samples))
            for name, counter in counters.items()
        }

    def text(self) -> str:
        """All metrics in Prometheus' text format."""
        return str(generate_latest(self._registry), "utf-8")

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"reweigh_{name}", documentation, labels, registry=self._registry)

    def _histogram(
        self, name: str, documentation: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(f"reweigh_{name}", documentation, labels, buckets=buckets, registry=self._registry)
