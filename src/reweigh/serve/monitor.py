"""What the owner of a server sees: a log with one line for each event, and metrics for Prometheus. Thread-safe."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

logger = logging.getLogger("reweigh.serve")

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
ROWS = (1, 2, 4, 8, 16, 32, 64)
FACTS = ("version", "model", "layer", "beta", "table_sha256", "torch", "transformers")
"""Facts about the served model that are labels of ``reweigh_build_info``."""


def tell(message: str, **fields: Any) -> None:
    """Log an event with its facts."""
    logger.info(message, extra={"fields": fields})


def log_to_stderr(*, as_json: bool = False) -> None:
    """Send the log to standard error, as text for people or as JSON for programs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else TextLines())
    for name in ("reweigh.serve", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO if name == "reweigh.serve" else logging.ERROR)


class TextLines(logging.Formatter):
    """Time, level, message, then ``name=value`` for each fact."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # logging's own name
        """Return the line; a traceback follows it."""
        facts = [f"{name}={_quoted(value)}" for name, value in getattr(record, "fields", {}).items()]
        return " ".join([super().formatMessage(record), *facts])


class JsonLines(logging.Formatter):
    """One JSON object for each event; a traceback is its ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _quoted(value: Any) -> str:
    """Return a value as one word, quoted if it has several."""
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text)


class Metrics:
    """The counters and histograms of one server, in a registry of its own."""

    def __init__(self) -> None:
        disable_created_metrics()
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"namespace": "reweigh", "registry": self._registry}
        self._requests = Counter("requests", "Requests by path and status.", ["path", "status"], **own)
        self._seconds = Histogram(
            "request_seconds", "Time of requests by path.", ["path"], buckets=SECONDS, **own
        )
        self._answers = Counter("answers", "Answers by decoder.", ["decoder"], **own)
        self._changed = Counter(
            "changed_words",
            "Steps at which the edit put another token first, by decoder.",
            ["decoder"],
            **own,
        )
        self._build = Gauge("build_info", "What is served; always 1.", FACTS, **own)
        self.tokens = Counter("tokens", "Tokens read and written.", ["kind"], **own)
        self.evidence = Counter(
            "evidence", "Rows whose evidence was measured or recalled.", ["source"], **own
        )
        self.left = Counter("left", "Clients that disconnected before their answer was complete.", **own)
        self.first_token = Histogram(
            "first_token_seconds", "Time to the first text of an answer.", buckets=SECONDS, **own
        )
        self.batch_rows = Histogram("batch_rows", "Answers decoded together.", buckets=ROWS, **own)
        for label in ("prompt", "generated"):
            self.tokens.labels(label)
        for label in ("measured", "recalled"):
            self.evidence.labels(label)
        ProcessCollector(registry=self._registry)

    def watch(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        """Report what ``read`` returns whenever the metrics are requested."""
        Gauge(name, documentation, registry=self._registry).set_function(read)

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a finished request."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def answers(self, decoder: str, count: int, changed: int) -> None:
        """Count answers of one decoder, and the words that were changed in them."""
        self._answers.labels(decoder).inc(count)
        self._changed.labels(decoder).inc(changed)

    def build(self, facts: Mapping[str, Any]) -> None:
        """Report what is served from now on."""
        self._build.clear()
        self._build.labels(*(str(facts[name]) for name in FACTS)).set(1)

    def totals(self) -> dict[str, int]:
        """Count requests, answers and changed words so far, for the last line of the log."""
        counters = {"requests": self._requests, "answers": self._answers, "changed": self._changed}
        return {
            name: round(sum(one.value for one in next(iter(counter.collect())).samples))
            for name, counter in counters.items()
        }

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        return str(generate_latest(self._registry), "utf-8")
