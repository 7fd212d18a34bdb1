"""Outcomes on their way from the worker to the user, and the evidence of each token that a request wrote."""

from __future__ import annotations

import pickle
from collections import deque
from types import SimpleNamespace as Plain

import numpy as np
import pytest

from reweigh.engines.vllm import chats
from reweigh.engines.vllm.chats import Reply
from reweigh.engines.vllm.config import MARK, READ_FOR
from reweigh.engines.vllm.outputs import Metrics, Outputs, Shown
from reweigh.engines.vllm.report import Reporting, attach, outcome
from reweigh.engines.vllm.store import Entry
from reweigh.tables.table import ReferenceTable


def edited() -> Entry:
    reader = Plain(layers=(2,))
    return Entry(
        keys=("k",), positions=[1], beta=1.1, prompt=4, reader=reader, source="measured", seconds=0.0125
    )


class Output(Plain):
    """As vLLM's: a plain dataclass that travels between processes by pickle."""


class Waiting:
    """As vLLM's output of an asynchronous step."""

    def __init__(self, output):
        self.output = output

    def get_output(self):
        return self.output


class Scheduler:
    """As vLLM's: one output for each row of a step; a request named in ``ends`` ends."""

    def __init__(self, settings=None):
        self.vllm_config = Plain(additional_config={"reweigh": {"table": "t", **(settings or {})}})
        self.requests = {}

    def add_request(self, request):
        self.requests[request.request_id] = request

    def update_from_output(self, scheduled, model_output):
        ends = model_output.ends
        for name in ends:
            self.requests.pop(name, None)
        made = [
            Plain(request_id=name, kv_transfer_params=None, finished=name in ends) for name in scheduled.rows
        ]
        return {0: Plain(outputs=made)}


class ReportingScheduler(Reporting, Scheduler):
    """The same with reweigh."""


def step(scheduler, rows, *, new=(), ends=(), told=(), finished=()):
    """The outcomes in one step's outputs, by request, and their order."""
    message = Output(ends=ends)
    attach(message, dict(told), 0.001, [], deque())
    scheduled = Plain(
        rows=rows, finished_req_ids=finished, scheduled_new_reqs=[Plain(req_id=one) for one in new]
    )
    outputs = scheduler.update_from_output(scheduled, message)[0].outputs
    order = "".join(output.request_id for output in outputs)
    return order, {
        output.request_id: output.kv_transfer_params["reweigh"]["edited"]
        for output in outputs
        if output.kv_transfer_params
    }


@pytest.mark.parametrize("is_async", [False, True])
def test_outcomes_travel_from_worker_to_output(is_async):
    inner = Output()
    whole = Waiting(inner) if is_async else inner
    failed = Entry(keys=("k",), positions=[1], beta=1.1, prompt=4, reason="gone")
    assert attach(whole, {"a": edited(), "b": failed}, 0.002, [], deque()) is whole
    if is_async:
        assert vars(inner) == {}  # nothing is known before somebody waits
        assert whole.get_output() is inner
    scheduler = ReportingScheduler()
    for name in "abc":
        asked = Plain(request_id=name, sampling_params=Plain(extra_args={MARK: 1.0}))
        scheduler.add_request(asked)
    scheduled = Plain(finished_req_ids=(), scheduled_new_reqs=[Plain(req_id=name) for name in "ab"])
    scheduler.note(scheduled, pickle.loads(pickle.dumps(inner)))
    assert scheduler.untold == {"a", "b"}
    outputs = [Plain(request_id=name, kv_transfer_params={"other": 1}, finished=False) for name in "ab"]
    scheduler.report(Plain(outputs=outputs))
    assert outputs[0].kv_transfer_params == {
        "other": 1,
        "reweigh": {"edited": True, "beta": 1.1, "layer": 2, "evidence": "measured", "evidence_ms": 12.5},
        "reweigh_steps_ms": [2.0],
    }
    gone = {"edited": False, "reason": "gone"}
    assert outputs[1].kv_transfer_params == {"other": 1, "reweigh": gone}  # the times were reported once
    assert not scheduler.untold
    scheduler.note(Plain(finished_req_ids="ab", scheduled_new_reqs=[]), Output())
    assert set(scheduler.known) == {"c"}


def test_an_outcome_is_told_first_and_last_and_leads_its_step():
    scheduler = ReportingScheduler()
    for name, beta in (("a", 1.0), ("b", 0.0), ("c", 1.0)):
        scheduler.add_request(Plain(request_id=name, sampling_params=Plain(extra_args={MARK: beta})))
    assert step(scheduler, "", new="a") == ("", {})  # a first chunk of a prompt has no output
    assert step(scheduler, "ba", told=[("a", edited())]) == ("ab", {"a": True})
    assert step(scheduler, "bca", new="c") == ("cba", {"c": False})  # of which the worker said nothing
    assert step(scheduler, "bca") == ("bca", {})
    assert step(scheduler, "bca", told=[("c", edited())]) == ("cba", {"c": True})
    assert step(scheduler, "bca", ends="ab") == ("abc", {"a": True})
    assert step(scheduler, "c", finished="ab") == ("c", {})
    assert set(scheduler.known) == {"c"}


def test_news_of_a_request_that_has_ended_are_dropped():
    """An accelerator may find out with the next step that a request's logits formed no distribution."""
    scheduler = ReportingScheduler()
    scheduler.add_request(Plain(request_id="a", sampling_params=Plain(extra_args={MARK: 1.0})))
    assert step(scheduler, "a", new="a", told=[("a", edited())], ends="a") == ("a", {"a": True})
    assert step(scheduler, "", finished="a", told=[("a", edited())]) == ("", {})
    assert not scheduler.known
    assert not scheduler.untold


def test_an_output_without_news_is_left_alone():
    shared = Output()
    assert attach(shared, {}, 0.0, [], deque()) is shared
    assert vars(shared) == {}
    assert attach(None, {"a": edited()}, 0.1, [], deque()) is None
    assert outcome(edited())["edited"]


class State(Plain):
    """As vLLM's state of a request: makes the outputs for the user."""

    def make_request_output(self, output):
        return Plain(
            request_id=self.external_req_id,
            kv_transfer_params=output.kv_transfer_params,
            outputs=[Plain(finish_reason=output.finish_reason)],
            finished=output.finished,
        )


class Front:
    """As vLLM's output processor: a request's output, in a queue or returned, with what the engine put into it."""

    def __init__(self):
        self.request_states, self.log_stats = {}, False

    def add_request(self, request, parent=None, queue=None):
        name = request.request_id
        self.request_states[name] = State(parent_req=parent, queue=queue, external_req_id=name.upper())

    def process_outputs(self, outputs):
        made = []
        for output in outputs:
            state = self.request_states[output.request_id]
            one = state.make_request_output(output)
            made.append(one) if state.queue is None else state.queue.put(one)
            if output.finished:
                del self.request_states[output.request_id]
        return Plain(request_outputs=made, reqs_to_abort=[])


def front(refuses=False):
    processor = Front()
    return processor, Outputs(processor, Metrics("m", enabled=False), {}, refuses=refuses)


def asked(name, beta=1.0):
    return Plain(request_id=name, sampling_params=Plain(extra_args={MARK: beta, READ_FOR: "first"}))


def made(name, told=None, finish=None):
    params = None if told is None else {"reweigh": dict(told), "reweigh_steps_ms": [1.0]}
    return Plain(
        request_id=name, kv_transfer_params=params, finish_reason=finish, finished=finish is not None
    )


EDITED, LOST = {"edited": True, "beta": 1.0, "layer": 2}, {"edited": False, "reason": "gone"}


def test_every_output_for_the_user_carries_the_outcome_that_was_told_once():
    processor, follower = front()
    for name, beta in (("a", 1.0), ("b", 0.0), ("c", 1.0)):
        processor.add_request(asked(name, beta))
    first = processor.process_outputs([made("a", EDITED), made("b"), made("c")])
    assert [
        one.kv_transfer_params and one.kv_transfer_params["reweigh"]["edited"]
        for one in first.request_outputs
    ] == [
        True,
        None,
        False,  # the worker said nothing of it
    ]
    last = processor.process_outputs([made("a", EDITED, "stop"), made("c", LOST, "stop"), made("b")])
    assert last.request_outputs[0].kv_transfer_params == {"reweigh": {**EDITED}}
    assert last.request_outputs[1].kv_transfer_params["reweigh"]["reason"] == "gone"
    assert not follower.in_use()


def test_an_outcome_names_the_table_that_was_asked_for():
    processor, follower = front()
    for name, extra in (("a", {"reweigh_table": "other"}), ("b", {}), ("c", {"reweigh_table": "default"})):
        one = asked(name)
        one.sampling_params.extra_args.update(extra)
        processor.add_request(one)
    made_of = processor.process_outputs([made(name, EDITED) for name in "abc"]).request_outputs
    assert [one.kv_transfer_params["reweigh"].get("table") for one in made_of] == ["other", None, None]
    assert follower.in_use() == {"first"}


def test_samples_of_one_request_speak_for_each_other():
    processor, _ = front()
    parent, put = Plain(), []
    queue = Plain(put=put.append)
    for name in "ab":
        processor.add_request(asked(name), parent, queue)
    processor.process_outputs([made("a", EDITED), made("b", LOST)])
    processor.process_outputs([made("a", EDITED)])
    told = [one.kv_transfer_params["reweigh"] for one in put]
    assert [one["edited"] for one in told] == [False, False, False]
    assert told[0]["reason"] == "of one of its samples: gone"


def test_an_http_answer_hears_of_its_requests(monkeypatch):
    reply = Reply("/v1/chat/completions", None)
    monkeypatch.setattr(chats, "current", lambda: reply)
    monkeypatch.setattr(chats, "refusal", ValueError)
    processor, _ = front(refuses=True)
    put = []
    processor.add_request(asked("a"), None, Plain(put=put.append))
    assert not reply.is_settled
    processor.process_outputs([made("a", LOST, "error")])
    assert reply.is_settled
    assert reply.refused
    assert chats.header(reply.told) == b"unedited; gone"
    [error] = put
    assert isinstance(error, ValueError)
    assert "gone" in str(error)


WORDS = {1: " a", 2: " dog", 3: " cat", 4: " mat"}
TABLE = ReferenceTable(2, 0.5, np.array([2, 3]), np.array([0.4, 0.3]), np.array([9, 9]), {})
TOLD = {"edited": True, "beta": 1.5, "layer": 2}


class Text:
    """As vLLM's detokenizer: the text so far."""

    output_text = ""


def shown(*, is_delta=False):
    tokenizer = Plain(decode=lambda ids, skip_special_tokens: WORDS[ids[0]])
    state = Plain(detokenizer=Text())
    return Shown(TABLE, tokenizer, state, is_delta=is_delta), state.detokenizer


def write_step(one, text, tokens, winners, told=TOLD):
    one.hear(dict(told), tokens, winners)
    text.output_text += "".join(WORDS[token] for token in tokens)


def test_each_token_has_its_evidence_reference_strength_and_what_it_replaced():
    one, text = shown()
    write_step(one, text, [1], [[1, 1]], {**TOLD, "dmrr": [0.1, 0.35]})
    write_step(one, text, [2, 3], [[3, 2], [3, 3], [4, 4]])  # a third row was drafted and not accepted
    told = one.write(TOLD, 3)
    assert (told["decoder"], told["b0"], told["beta"], told["changed"]) == ("reweigh", 0.5, 1.5, 1)
    first, second, third = told["tokens"]
    assert first == {
        "step": 0, "token": 1, "text": " a", "start": 0, "end": 2, "dmrr": None, "b": None, "s": None, "replaced": None
    }  # fmt: skip
    assert (second["dmrr"], second["b"]) == (0.1, 0.4)
    assert second["s"] == pytest.approx((0.4 - 0.1) / 0.5)
    assert second["replaced"] == {"token": 3, "text": " cat"}
    assert third["s"] == 0.0  # more evidence than its reference
    assert [(one["start"], one["end"]) for one in told["tokens"]] == [(0, 2), (2, 6), (6, 10)]


def test_a_stream_shows_each_token_once_and_a_whole_answer_all_of_them():
    for is_delta, expected in ((True, [[1], [2]]), (False, [[1], [1, 2]])):
        one, text = shown(is_delta=is_delta)
        seen = []
        for count, token in enumerate((1, 2), start=1):
            write_step(one, text, [token], [[token, token]])
            told = one.write(TOLD, 1 if is_delta else count)
            seen.append([known["token"] for known in told["tokens"]])
        assert seen == expected


def test_tokens_after_a_stop_are_not_shown():
    one, text = shown()
    write_step(one, text, [1, 2, 3], [[1, 1], [2, 2], [3, 3]])
    assert [known["token"] for known in one.write(TOLD, 2)["tokens"]] == [1, 2]
