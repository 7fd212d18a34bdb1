"""The outcome of each request on its way out: worker, scheduler, output.

vLLM has one mapping that travels with a request's output to its user, over HTTP too: ``kv_transfer_params``. What became of
a request that was to be edited stands there under "reweigh". The scheduler's side is fail-closed: a request of which the
worker said nothing is reported as not edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reweigh.engines.vllm.config import KEY, MARK
from reweigh.engines.vllm.store import Entry

CARRIED = "reweigh_report"
"""Attribute of a model runner's output that carries the worker's message."""

SILENT = {"edited": False, "reason": "the worker reported nothing about it"}


def outcome(entry: Entry) -> dict[str, Any]:
    """What became of one request, as plain values."""
    if entry.reason is not None:
        return {"edited": False, "reason": entry.reason}
    return {
        "edited": True,
        "beta": entry.beta,
        "evidence": entry.source,
        "evidence_ms": round(1000 * entry.seconds, 3),
    }


def attach(output: Any, news: Mapping[str, Entry], step_seconds: float) -> Any:
    """Put the worker's message on the output of a step; one without rows to speak of stays as it is."""
    if output is not None and (news or step_seconds):
        message = {"requests": {name: outcome(entry) for name, entry in news.items()}}
        carrier = getattr(output, "model_runner_output", None) or getattr(
            output, "_model_runner_output", output
        )
        setattr(carrier, CARRIED, {**message, "step_ms": round(1000 * step_seconds, 4)})
    return output


class Ledger:
    """The scheduler's knowledge of outcomes, until their requests end."""

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}

    def note(self, model_output: Any) -> float | None:
        """Take in a worker's message; the milliseconds its edits took."""
        message = getattr(model_output, CARRIED, None)
        if message is None:
            return None
        self.known.update(message["requests"])
        return float(message["step_ms"])

    def of(self, request: Any) -> dict[str, Any] | None:
        """The outcome of a request that was to be edited; ``None`` for any other."""
        params = request.sampling_params
        if params is None or not (params.extra_args or {}).get(MARK):
            return self.known.get(request.request_id)
        return self.known.setdefault(request.request_id, dict(SILENT))

    def forget(self, running: Mapping[str, Any]) -> None:
        """Drop requests that have ended."""
        for name in [name for name in self.known if name not in running]:
            del self.known[name]


def tell(output: Any, told: Mapping[str, Any], step_ms: float | None) -> None:
    """Write an outcome into a request's output."""
    said = dict(told) if step_ms is None or not told["edited"] else {**told, "step_ms": step_ms}
    output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: said}
