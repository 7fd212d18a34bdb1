"""The outcome of each request on its way out: worker, scheduler, output.

vLLM has one mapping that travels with a request's output to its user, over HTTP too: ``kv_transfer_params``. What became of
a request that was to be edited stands there under "reweigh". The scheduler's side is fail-closed: a request of which the
worker said nothing is reported as not edited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reweigh.engines.vllm.plugin import KEY
from reweigh.engines.vllm.processor import UNSOUND, Late
from reweigh.engines.vllm.store import Entry

CARRIED = "reweigh_report"
"""Attribute of a model runner's output that carries the worker's message."""

STEPS = 256
STEPS_KEY = "reweigh_steps_ms"
"""Beside the outcome, from the scheduler to the front end only."""

WINNERS = "reweigh_winners"
"""Beside the outcome: of each sampled token the best one before and after the edit."""
DMRR = "dmrr"
"""In the outcome of a request that asks for it: the evidence of each registered token."""

SILENT: dict[str, Any] = {"edited": False, "reason": "the worker reported nothing about it"}


def outcome(entry: Entry) -> dict[str, Any]:
    """What became of one request, as plain values."""
    if entry.reason is not None:
        return {"edited": False, "reason": entry.reason}
    told = {
        "edited": True,
        "beta": entry.beta,
        "layer": entry.reader.layers[0],
        "evidence": entry.source,
        "evidence_ms": round(1000 * entry.seconds, 3),
    }
    if entry.is_shown:
        told[DMRR] = entry.reader.mean(entry, entry.reader.layers[0]).tolist()
    return told


def attach(output: Any, message: dict[str, Any] | None, late: Sequence[Late], unsound: deque[Any]) -> Any:
    """Put the worker's message on the output of a step, with values that arrive with the sampled tokens.

    An asynchronous output is completed when it is waited for; until then ``late`` may not be read. Requests whose logits
    formed no distribution are left in ``unsound``.
    """
    if output is None or (message is None and not late):
        return output
    if not hasattr(output, "get_output"):
        setattr(output, CARRIED, _completed(message, late, unsound))
        return output
    wait = output.get_output

    def get_output() -> Any:
        result = wait()
        setattr(result, CARRIED, _completed(message, late, unsound))
        return result

    output.get_output = get_output
    return output


def _completed(message: dict[str, Any] | None, late: Sequence[Late], unsound: deque[Any]) -> dict[str, Any]:
    """The message with what has arrived."""
    whole = {"requests": {}, "step_ms": 0.0, **(message or {})}
    for one in late:
        if one.sound is not None and not all(flags := one.sound.tolist()):
            for entry in {entry for entry, flag in zip(one.entries, flags, strict=True) if not flag}:
                unsound.append(entry)
                whole["requests"][entry.name] = {"edited": False, "reason": UNSOUND}
        if one.winners is not None:
            winners = whole.setdefault("winners", {})
            for entry, pair in zip(one.entries, one.winners.tolist(), strict=True):
                winners.setdefault(entry.name, []).append(pair)
    return whole


def message_of(news: Mapping[str, Entry], step_seconds: float) -> dict[str, Any] | None:
    """What a worker has to say after a step; ``None`` for nothing."""
    if not news and not step_seconds:
        return None
    told = {name: outcome(entry) for name, entry in news.items()}
    return {"requests": told, "step_ms": round(1000 * step_seconds, 4)}


class Ledger:
    """The scheduler's knowledge of outcomes, until their requests end.

    Attributes:
        known: What is known of each request that was to be edited.
        untold: Those that run and whose outcome is news.
    """

    def __init__(self) -> None:
        self.known: dict[str, dict[str, Any]] = {}
        self.untold: set[str] = set()
        self.winners: dict[str, list[list[int]]] = {}
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
        self.winners = {} if message is None else message.get("winners", {})
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


def tell(output: Any, told: Mapping[str, Any], **more: list[Any] | None) -> None:
    """Write an outcome into a request's output, and what goes with it to the front end."""
    with_it = {name: values for name, values in more.items() if values}
    output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: dict(told), **with_it}
