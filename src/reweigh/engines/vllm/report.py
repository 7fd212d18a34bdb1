"""The outcome of each request on its way out: worker, scheduler, output.

vLLM has one mapping that travels with a request's output to its user, over HTTP too: ``kv_transfer_params``. What became of
a request that was to be edited stands there under "reweigh". The scheduler's side is fail-closed: a request of which the
worker said nothing is reported as not edited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from reweigh.engines.vllm.plugin import KEY
from reweigh.engines.vllm.store import Entry

CARRIED = "reweigh_report"
"""Attribute of a model runner's output that carries the worker's message."""

STEPS = 256
STEPS_KEY = "reweigh_steps_ms"
"""Beside the outcome, from the scheduler to the front end only."""

SILENT: dict[str, Any] = {"edited": False, "reason": "the worker reported nothing about it"}


def outcome(entry: Entry) -> dict[str, Any]:
    """What became of one request, as plain values."""
    if entry.reason is not None:
        return {"edited": False, "reason": entry.reason}
    return {
        "edited": True,
        "beta": entry.beta,
        "layer": entry.reader.layers[0],
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
    """The scheduler's knowledge of outcomes, until their requests end.

    Attributes:
        known: What is known of each request that was to be edited.
        untold: Those that run and whose outcome is news.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.untold: set[str] = set()
        self._steps: deque[float] = deque(maxlen=STEPS)

    def expect(self, name: str) -> None:
        """Note a request that is to be edited."""
        self.known[name] = dict(SILENT)

    def start(self, names: Iterable[str]) -> None:
        """Note requests that begin to run."""
        self.untold.update(name for name in names if name in self.known)

    def note(self, model_output: Any) -> None:
        """Take in a worker's message."""
        message = getattr(model_output, CARRIED, None)
        if message is not None:
            self.known.update(message["requests"])
            self.untold.update(message["requests"])
            if message["step_ms"]:
                self._steps.append(float(message["step_ms"]))

    def take(self, name: str) -> dict[str, Any]:
        """The outcome of a request, which is news no longer."""
        self.untold.discard(name)
        return self.known[name]

    def steps(self) -> list[float]:
        """The milliseconds that edits took in the steps since the last call, at most the last ``STEPS``."""
        taken = list(self._steps)
        self._steps.clear()
        return taken

    def forget(self, names: Iterable[str]) -> None:
        """Drop requests that have ended."""
        for name in names:
            self.known.pop(name, None)
            self.untold.discard(name)


def tell(output: Any, told: Mapping[str, Any], steps: list[float]) -> None:
    """Write an outcome into a request's output, and what edits took since the last one."""
    more = {STEPS_KEY: steps} if steps else {}
    output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: dict(told), **more}
