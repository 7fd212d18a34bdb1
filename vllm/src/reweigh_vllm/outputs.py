"""Write the outcome of each request that should be edited into its outputs.

Also counts outcomes beside vLLM's own metrics, and adds the evidence of each token for requests that ask for it, in the
form of ``reweigh serve``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from reweigh_vllm import streams
from reweigh_vllm.core import ReferenceTable
from reweigh_vllm.plugin import KEY
from reweigh_vllm.report import DMRR, REASON, SILENT, STEPS_KEY, WINNERS, is_reported
from reweigh_vllm.settings import SHOWN

RECORD = "_reweigh_record"
MILLISECONDS = (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3000, 10000)
MODEL = "model_name"
"""The label under which vLLM's own metrics name the model."""


@dataclass(slots=True, eq=False)
class Record:
    """One request of a user; its samples share the record.

    Attributes:
        told: The outcome; once one sample could not be edited, it stays so.
        shown: The evidence of its tokens, if it asks for it.
    """

    told: dict[str, Any] | None = None
    shown: Shown | None = None

    def hear(self, told: dict[str, Any], *, of_several: bool) -> None:
        """Note the outcome of the request, or of one of its samples."""
        if self.told is None or REASON not in self.told:
            if of_several and REASON in told:
                told = {**told, REASON: f"of one of its samples: {told[REASON]}"}
            self.told = told

    def write(self, output: Any) -> None:
        """Write the outcome into an output for the user."""
        told = self.told or dict(SILENT)
        if self.shown is not None and REASON not in told:
            told = self.shown.write(told, len(output.outputs[0].token_ids))
        output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: told}

    def follow(self, state: Any) -> None:
        """Write the outcome into each output of a request; end a refused one with the reason, if it has a queue."""
        original = state.make_request_output

        def make_request_output(*args: Any, **kwargs: Any) -> Any:
            output = original(*args, **kwargs)
            if output is None:
                return None
            self.write(output)
            told = self.told or SILENT
            failed = any(one.finish_reason == "error" for one in output.outputs)
            if failed and REASON in told and state.queue is not None:
                return streams.refusal(told[REASON])
            return output

        state.make_request_output = make_request_output


class Outputs:
    """Follows the outputs of one engine. The record of a request is kept with vLLM's own state of it."""

    def __init__(self, processor: Any, metrics: Metrics, table: ReferenceTable) -> None:
        self.processor, self.metrics, self.table = processor, metrics, table
        self._add, self._process = processor.add_request, processor.process_outputs
        processor.add_request, processor.process_outputs = self.add_request, self.process_outputs

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Add a request, and note its outcome if it should be edited."""
        result = self._add(request, *args, **kwargs)
        params, state = request.sampling_params, self.processor.request_states.get(request.request_id)
        if state is None or not is_reported(params) or hasattr(state, RECORD):
            return result
        shared = vars(state.parent_req) if state.parent_req is not None else {}
        record = shared.setdefault(RECORD, Record())
        setattr(state, RECORD, record)
        record.follow(state)
        if params.extra_args.get(SHOWN):
            is_delta = params.output_kind.name == "DELTA"
            record.shown = Shown(self.table, self.processor.tokenizer, state, is_delta=is_delta)
        return result

    def process_outputs(self, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Read the news of a step, which comes first."""
        for output, told, steps, winners in _news(engine_core_outputs):
            state = self.processor.request_states.get(output.request_id)
            record: Record | None = getattr(state, RECORD, None)
            if state is None or record is None:
                continue
            self.metrics.count(told, steps, first=record.told is None)
            if record.shown is not None:
                record.shown.hear(told, output.new_token_ids, winners)
            record.hear(told, of_several=state.parent_req is not None)
        return self._process(engine_core_outputs, *args, **kwargs)


def _news(outputs: Iterable[Any]) -> Iterator[tuple[Any, dict[str, Any], list[float], list[Any]]]:
    """Take outcomes, and what goes with them, off the leading outputs that carry one."""
    for output in outputs:
        carried = output.kv_transfer_params
        if not carried or KEY not in carried:
            return
        yield output, carried.pop(KEY), carried.pop(STEPS_KEY, []), carried.pop(WINNERS, [])
        output.kv_transfer_params = carried or None


class Shown:
    """The evidence of one request's tokens.

    Args:
        table: The references.
        tokenizer: Turns tokens into text.
        state: vLLM's state of the request, whose detokenizer holds the text so far.
        is_delta: Whether each output has its own tokens only.
    """

    def __init__(self, table: ReferenceTable, tokenizer: Any, state: Any, *, is_delta: bool) -> None:
        self.table, self.tokenizer, self.state, self.is_delta = table, tokenizer, state, is_delta
        self.tokens: list[dict[str, Any]] = []
        self.changed = 0
        self._dmrr: Sequence[float] | None = None
        self._placed = self._written = self._end = 0

    def hear(self, told: dict[str, Any], tokens: Sequence[int], winners: Sequence[Sequence[int]]) -> None:
        """Note one step: the outcome, the sampled tokens, and the best token before and after each edit."""
        self.place()
        self._dmrr = told.pop(DMRR, self._dmrr)
        for token, (before, after) in zip(tokens, winners, strict=False):
            replaced = None if before == after else {"token": before, "text": self._text(before)}
            self.changed += replaced is not None
            known = {"step": len(self.tokens), "token": token, "text": self._text(token)}
            self.tokens.append({**known, **self.table.support(token, self._dmrr), "replaced": replaced})

    def place(self) -> None:
        """Find the places of new tokens in the text, which has grown by them."""
        new = self.tokens[self._placed :]
        if not new:
            return
        whole = len(self.state.detokenizer.output_text)
        for one in new:
            start = self._end
            self._end = whole if one is new[-1] else min(whole, start + len(one["text"]))
            one["start"], one["end"] = start, self._end
        self._placed = len(self.tokens)

    def write(self, told: Mapping[str, Any], count: int) -> dict[str, Any]:
        """Return an outcome with the tokens of an output, which has ``count`` of them."""
        self.place()
        first = self._written if self.is_delta else 0
        self._written = first + count
        tokens = self.tokens[first : self._written]
        return {
            **told,
            "decoder": "reweigh",
            "b0": self.table.b0,
            "changed": self.changed,
            "tokens": tokens,
        }

    def _text(self, token: int) -> str:
        return str(self.tokenizer.decode([token], skip_special_tokens=False))


@cache
def _registered() -> dict[str, Any]:
    """Register the metrics, at the first observation: vLLM clears metrics with its prefix when an engine starts."""
    from prometheus_client import Counter, Histogram

    def histogram(name: str, text: str) -> Any:
        return Histogram(f"vllm:reweigh_{name}", text, [MODEL], buckets=MILLISECONDS)

    return {
        "requests": Counter(
            "vllm:reweigh_requests", "Requests that should be edited, by outcome.", [MODEL, "edited"]
        ),
        "evidence": Counter(
            "vllm:reweigh_evidence", "Evidence of edited requests: measured or recalled.", [MODEL, "source"]
        ),
        "image": histogram("evidence_ms", "Milliseconds per measured request's evidence."),
        "step": histogram("step_ms", "Milliseconds of edits per engine step."),
    }


def reset_metrics() -> None:
    """Drop the counters of an earlier engine in this process, as vLLM does with its own."""
    if not _registered.cache_info().currsize:
        return
    from prometheus_client import REGISTRY

    for metric in _registered().values():
        with contextlib.suppress(KeyError):  # vLLM may have taken it out already
            REGISTRY.unregister(metric)
    _registered.cache_clear()


class Metrics:
    """The counters of one engine, under its model's name; off where vLLM logs no statistics."""

    def __init__(self, model: str, *, enabled: bool) -> None:
        self.model, self.enabled = model, enabled

    def count(self, told: dict[str, Any], steps: Iterable[float], *, first: bool) -> None:
        """Count a reported outcome, if it is the ``first`` of its request, and the milliseconds of recent steps."""
        if not self.enabled:
            return
        metrics = _registered()
        for milliseconds in steps:
            metrics["step"].labels(self.model).observe(milliseconds)
        if not first:
            return
        metrics["requests"].labels(self.model, str(told["edited"]).lower()).inc()
        if REASON in told:
            return
        metrics["evidence"].labels(self.model, told["evidence"]).inc()
        if told["evidence"] == "measured":
            metrics["image"].labels(self.model).observe(told["evidence_ms"])
