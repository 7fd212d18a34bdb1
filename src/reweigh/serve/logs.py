"""The server's log: one line for each event, as text for people or as JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

logger = logging.getLogger("reweigh.serve")


def tell(message: str, **fields: Any) -> None:
    """Log an event with its facts."""
    logger.info(message, extra={"fields": fields})


def log_to_stderr(*, as_json: bool = False) -> None:
    """Send the log to standard error."""
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
        """The line; a traceback follows it."""
        facts = (f"{name}={_shown(value)}" for name, value in _fields(record).items())
        return " ".join([super().formatMessage(record), *facts])


class JsonLines(logging.Formatter):
    """One JSON object for each event; a traceback is its ``error``."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = getattr(record, "fields", {})
    return found


def _shown(value: Any) -> str:
    """A value as one word, quoted if it is not."""
    text = str(value)
    plain = text.isprintable() and text and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text)
