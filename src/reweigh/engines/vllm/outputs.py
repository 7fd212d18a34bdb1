"""The way out of the front end: a request that was to be edited leaves with its outcome, or is said not to be edited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from reweigh.engines.vllm import chats
from reweigh.engines.vllm.config import MARK, SHOWN
from reweigh.engines.vllm.metrics import Metrics
from reweigh.engines.vllm.plugin import KEY
from reweigh.engines.vllm.report import SILENT, STEPS_KEY, WINNERS
from reweigh.engines.vllm.shown import Shown
from reweigh.tables.table import ReferenceTable

RECORD = "_reweigh_record"


@dataclass(slots=True, eq=False)
class Record:
    """What is known of one request of a user; its samples share it.

    Attributes:
        told: The outcome; once a sample was not edited, no other can change that.
        reply: The HTTP answer that it belongs to, if it does.
        refuses: Whether a request that was not edited ends in an error.
        shown: The evidence of its tokens, if it asks for that.
    """

    told: dict[str, Any] | None = None
    reply: chats.Reply | None = None
    refuses: bool = False
    shown: Shown | None = None

    def hear(self, told: dict[str, Any], *, of_several: bool) -> None:
        """Take in the outcome of the request, or of one of its samples."""
        if self.told is None or self.told["edited"]:
            if of_several and not told["edited"]:
                told = {"edited": False, "reason": f"of one of its samples: {told['reason']}"}
            self.told = told
        if self.reply is not None:
            self.reply.hear(self, self.told, refused=self.refuses)

    def write(self, output: Any) -> None:
        """Write the outcome into an output for the user."""
        told = self.told or dict(SILENT)
        if self.shown is not None and told["edited"]:
            told = self.shown.write(told, len(output.outputs[0].token_ids))
        output.kv_transfer_params = {**(output.kv_transfer_params or {}), KEY: told}

    def through(self, put: Any) -> Any:
        """A queue's ``put`` that writes the outcome into each output, and ends a refused request with the reason."""

        def put_outcome(output: Any) -> None:
            if hasattr(output, "kv_transfer_params"):
                self.write(output)
                if any(one.finish_reason == "error" for one in output.outputs) and not self._is_edited:
                    output = chats.refusal((self.told or SILENT)["reason"])
            put(output)

        return put_outcome

    @property
    def _is_edited(self) -> bool:
        return self.told is not None and bool(self.told["edited"])


class Outputs:
    """Follows the outputs of one engine.

    Attributes:
        records: Running requests that are to be edited, by vLLM's own id.
        offline: The same by the user's id, for engines that return outputs instead of putting them into queues.
    """

    def __init__(
        self, processor: Any, metrics: Metrics, table: ReferenceTable | None = None, *, refuses: bool
    ) -> None:
        self.processor, self.metrics, self.refuses = processor, metrics, refuses
        self.table = table
        self.records: dict[str, Record] = {}
        self.offline: dict[str, Record] = {}
        self._add, self._process = processor.add_request, processor.process_outputs
        self._abort = processor.abort_requests
        processor.add_request, processor.process_outputs = self.add_request, self.process_outputs
        processor.abort_requests = self.abort_requests

    def add_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Take in a request."""
        result = self._add(request, *args, **kwargs)
        params, state = request.sampling_params, self.processor.request_states.get(request.request_id)
        if state is None or params is None or not (params.extra_args or {}).get(MARK):
            return result
        shared = vars(state.parent_req) if state.parent_req is not None else {}
        record = shared.setdefault(RECORD, Record(refuses=self.refuses))
        self.records[request.request_id] = record
        if params.extra_args.get(SHOWN) and self.table is not None:
            is_delta = params.output_kind.name == "DELTA"
            record.shown = Shown(self.table, self.processor.tokenizer, state, is_delta=is_delta)
        if record.reply is None and (reply := chats.current()) is not None:
            record.reply = reply
            reply.expect(record)
        if state.queue is None:
            self.offline[state.external_req_id] = record
        elif not hasattr(state.queue, RECORD):
            setattr(state.queue, RECORD, record)
            state.queue.put = record.through(state.queue.put)
        return result

    def process_outputs(self, engine_core_outputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Hear the news of a step, which come first in it, and write outcomes into what it returns."""
        if not self.records:
            return self._process(engine_core_outputs, *args, **kwargs)
        ended = []
        for output, told, steps, winners in _news(engine_core_outputs):
            record = self.records.get(output.request_id)
            if record is not None:
                self.metrics.count(told, steps, first=record.told is None)
                if record.shown is not None:
                    record.shown.hear(told, output.new_token_ids, winners)
                state = self.processor.request_states.get(output.request_id)
                record.hear(told, of_several=state is not None and state.parent_req is not None)
            if output.finished:
                ended.append(output.request_id)
        done = self._process(engine_core_outputs, *args, **kwargs)
        for output in done.request_outputs:
            record = self.offline.get(output.request_id)
            if record is not None:
                record.write(output)
                if output.finished:
                    del self.offline[output.request_id]
        for name in (*ended, *done.reqs_to_abort):
            self.records.pop(name, None)
        return done

    def abort_requests(self, *args: Any, **kwargs: Any) -> Any:
        """Drop requests that were aborted."""
        result = self._abort(*args, **kwargs)
        states = self.processor.request_states
        self.records = {name: record for name, record in self.records.items() if name in states}
        external = self.processor.external_req_ids
        self.offline = {name: record for name, record in self.offline.items() if name in external}
        return result


def _news(outputs: Iterable[Any]) -> Iterator[tuple[Any, dict[str, Any], list[float], list[Any]]]:
    """The leading outputs that carry an outcome, which is taken off them with what goes with it."""
    for output in outputs:
        carried = output.kv_transfer_params
        if not carried or KEY not in carried:
            return
        yield output, carried.pop(KEY), carried.pop(STEPS_KEY, []), carried.pop(WINNERS, [])
        output.kv_transfer_params = carried or None
