"""Report the outcome of each request: from the worker to the scheduler, and from there into its outputs.

vLLM has one mapping that reaches a request's user, over HTTP too: ``kv_transfer_params``. The outcome of a request that
should be edited is there under "reweigh", in its first and last output. Reports are fail-closed: if the worker said
nothing about a request, it counts as not edited.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from reweigh_vllm.plugin import KEY, logger
from reweigh_vllm.processor import UNSOUND, Late
from reweigh_vllm.reading import Entry
from reweigh_vllm.settings import MARK, SHOWN, settings_in

CARRIED = "reweigh_report"
"""Attribute of a model runner's output that carries the worker's message."""

STEPS = 256
"""Steps whose times are kept until the next report."""
STEPS_KEY = "reweigh_steps_ms"
"""Beside the outcome, from the scheduler to the front end only."""

WINNERS = "reweigh_winners"
"""Beside the outcome: for each sampled token, the best token before and after the edit."""
DMRR = "dmrr"
"""In the outcome of a request that asks for it: the evidence of each registered token."""
REASON = "reason"
"""In the outcome of a request that could not be edited, or observed."""
FAILED = "failed"
"""In the outcome of a request that ends with an error whatever the settings say."""

SILENT: dict[str, Any] = {"edited": False, REASON: "the worker reported nothing about it"}


def is_reported(params: Any) -> bool:
    """Tell whether the outcome of a request is reported: it should be edited, or shows the evidence of its tokens."""
    arguments = (None if params is None else params.extra_args) or {}
    return bool(arguments.get(MARK) or arguments.get(SHOWN))


def outcome(entry: Entry, layer: int, dmrr: Sequence[float] | None = None) -> dict[str, Any]:
    """Return the outcome of one request as plain values."""
    if entry.reason is not None:
        return {"edited": False, REASON: entry.reason, **({FAILED: True} if entry.is_failed else {})}
    told = {
        "edited": entry.beta > 0,
        "beta": entry.beta,
        "layer": layer,
        "evidence": entry.source,
        "evidence_ms": round(1000 * entry.seconds, 3),
    }
    return told if dmrr is None else {**told, DMRR: dmrr}


def attach(
    output: Any,
    requests: Mapping[str, dict[str, Any]],
    seconds: float,
    late: Sequence[Late],
    unsound: deque[Entry],
) -> Any:
    """Put the worker's message on the output of a step: outcomes that are known, and the time its edits took.

    An asynchronous output is completed when it is waited for; until then ``late`` may not be read. Requests whose logits
    formed no distribution are left in ``unsound``.
    """
    if output is None or not (requests or seconds or late):
        return output
    message = {"requests": dict(requests), "step_ms": round(1000 * seconds, 4), "winners": {}}

    def completed(result: Any) -> Any:
        _complete(message, late, unsound)
        setattr(result, CARRIED, message)
        return result

    if not hasattr(output, "get_output"):
        return completed(output)
    wait = output.get_output
    output.get_output = lambda: completed(wait())
    return output


def _complete(message: dict[str, Any], late: Sequence[Late], unsound: deque[Entry]) -> None:
    """Add values that have arrived."""
    for one in late:
        if one.sound is not None and not all(flags := one.sound.tolist()):
            for entry in {entry for entry, flag in zip(one.entries, flags, strict=True) if not flag}:
                unsound.append(entry)
                message["requests"][entry.name] = {"edited": False, REASON: UNSOUND}
        if one.winners is not None:
            for entry, pair in zip(one.entries, one.winners.tolist(), strict=True):
                message["winners"].setdefault(entry.name, []).append(pair)


class Reporting:
    """Mixin for vLLM's schedulers that reports outcomes; list it before vLLM's own class.

    A step in which no request begins, ends or has news costs the same for any number of rows.

    Attributes:
        known: The outcome so far of each request that should be edited.
        untold: Running requests whose outcome has not been reported.
        winners: For each request that asks for it, the best tokens before and after the edit in this step.
    """

    vllm_config: Any
    requests: dict[str, Any]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        settings = settings_in(self.vllm_config.additional_config)
        self.known: dict[str, dict[str, Any]] = {}
        self.untold: set[str] = set()
        self.winners: dict[str, list[list[int]]] = {}
        self._steps: deque[float] = deque(maxlen=STEPS)
        self._refuses = settings is not None and settings.unedited == "refuse"

    def add_request(self, request: Any) -> Any:
        """Add a request; if it should be edited, its outcome will be reported."""
        if is_reported(request.sampling_params):
            self.known[request.request_id] = dict(SILENT)
        return super().add_request(request)  # type: ignore[misc]

    def update_from_output(self, scheduled: Any, model_output: Any) -> Any:
        """Process the output of a step and report outcomes with the sampled tokens."""
        running = len(self.requests)
        self.note(scheduled, model_output)
        outputs = super().update_from_output(scheduled, model_output)  # type: ignore[misc]
        if self.untold or self.winners or len(self.requests) != running:
            for client in outputs.values():
                self.report(client)
        return outputs

    def note(self, scheduled: Any, model_output: Any) -> None:
        """Drop requests that have ended, note those that begin, and read the worker's message."""
        for name in scheduled.finished_req_ids:
            self.known.pop(name, None)
            self.untold.discard(name)
        self.untold.update(new.req_id for new in scheduled.scheduled_new_reqs if new.req_id in self.known)
        message = getattr(model_output, CARRIED, None)
        self.winners = {} if message is None else message["winners"]
        if message is not None:
            # a request may have ended before the worker learned that its logits formed no distribution
            news = {name: told for name, told in message["requests"].items() if name in self.requests}
            self.known.update(news)
            self.untold.update(news)
            if message["step_ms"]:
                self._steps.append(float(message["step_ms"]))

    def report(self, client: Any) -> None:
        """Report news and the outcomes of requests that end; these outputs go first, where the front end looks."""
        news = [
            output
            for output in client.outputs
            if output.request_id in self.untold
            or output.request_id in self.winners
            or (output.finished and output.request_id in self.known)
        ]
        for output in news:
            told = self.known[output.request_id]
            self.untold.discard(output.request_id)
            more = {STEPS_KEY: list(self._steps), WINNERS: self.winners.get(output.request_id)}
            self._steps.clear()
            beside = {name: values for name, values in more.items() if values}
            output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: dict(told), **beside}
            if REASON in told and (self._refuses or FAILED in told):
                self._refuse(output, told[REASON])
        if news:
            chosen = {id(output) for output in news}
            client.outputs[:] = news + [output for output in client.outputs if id(output) not in chosen]

    def _refuse(self, output: Any, reason: str) -> None:
        """End a request that could not be edited with an error."""
        from vllm.v1.engine import FinishReason
        from vllm.v1.request import RequestStatus

        logger.warning("reweigh refused request %s: %s", output.request_id, reason)
        if output.request_id in self.requests:
            self.finish_requests([output.request_id], RequestStatus.FINISHED_ERROR)  # type: ignore[attr-defined]
        output.new_token_ids, output.new_logprobs = [], None
        output.finish_reason, output.stop_reason = FinishReason.ERROR, None
