"""Outcomes on their way from the worker to the user, where no live engine shows it, and the evidence of each token."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from types import SimpleNamespace as Plain

import numpy as np
import pytest

from reweigh.tables.table import ReferenceTable
from reweigh_vllm.outputs import Record, Shown
from reweigh_vllm.reading import Entry
from reweigh_vllm.report import SILENT, Reporting, attach, outcome
from reweigh_vllm.settings import MARK, SHOWN
from reweigh_vllm.streams import streamed

EDITED = {"edited": True, "beta": 1.0, "layer": 2}
GONE = {"edited": False, "reason": "gone"}


class Scheduler:
    """As vLLM's: one output for each row of a step; a request named in ``ends`` ends."""

    def __init__(self, settings=None):
        self.vllm_config = Plain(additional_config={"reweigh": {"table": "t", **(settings or {})}})
        self.requests = {}

    def add_request(self, request):
        self.requests[request.request_id] = request

    def update_from_output(self, scheduled, model_output):
        for name in model_output.ends:
            self.requests.pop(name, None)
        made = [
            Plain(request_id=name, kv_transfer_params=None, finished=name in model_output.ends)
            for name in scheduled.rows
        ]
        return {0: Plain(outputs=made)}


class ReportingScheduler(Reporting, Scheduler):
    """The same with reweigh; it keeps what it refuses."""

    def __init__(self, settings=None):
        super().__init__(settings)
        self.refused = {}

    def _refuse(self, output, reason):
        self.refused[output.request_id] = reason


def start(names, settings=None, **arguments):
    scheduler = ReportingScheduler(settings)
    for name in names:
        asked = Plain(request_id=name, sampling_params=Plain(extra_args=arguments or {MARK: 1.0}))
        scheduler.add_request(asked)
    return scheduler


def step(scheduler, rows, *, new=(), ends=(), told=None, finished=()):
    """The outcomes in one step's outputs, by request, in their order."""
    message = Plain(ends=ends)
    attach(message, told or {}, 0.001, [], deque())
    scheduled = Plain(
        rows=rows, finished_req_ids=finished, scheduled_new_reqs=[Plain(req_id=one) for one in new]
    )
    outputs = scheduler.update_from_output(scheduled, message)[0].outputs
    return [
        (one.request_id, one.kv_transfer_params and one.kv_transfer_params["reweigh"]["edited"])
        for one in outputs
    ]


def test_an_outcome_is_told_first_and_last_and_leads_its_step():
    scheduler = start("ac")
    scheduler.add_request(Plain(request_id="b", sampling_params=Plain(extra_args={MARK: 0.0})))
    assert step(scheduler, "", new="a") == []  # a first chunk of a prompt has no output
    assert step(scheduler, "ba", told={"a": EDITED}) == [("a", True), ("b", None)]
    assert step(scheduler, "ba") == [("b", None), ("a", None)]
    assert step(scheduler, "ba", ends="a") == [("a", True), ("b", None)]
    assert step(scheduler, "b", finished="a", told={"a": GONE}) == [("b", None)]  # too late to be told
    assert set(scheduler.known) == {"c"}


def test_a_request_of_which_the_worker_says_nothing_counts_as_not_edited():
    assert step(start("a"), "a", new="a") == [("a", False)]
    strict = start("a", {"unedited": "refuse"})
    step(strict, "a", new="a")
    assert strict.refused == {"a": SILENT["reason"]}
    shown = start("a", **{MARK: 0.0, SHOWN: True})
    assert step(shown, "a", new="a") == [("a", False)]


@pytest.mark.parametrize("settings", [None, {"unedited": "refuse"}])
def test_a_failed_request_ends_with_an_error_whatever_the_settings_say(settings):
    entry = Entry(name="a", keys=("k",), prompt=4, beta=1.0)
    entry.fail("vLLM handed out the states of 1 of 4 positions")
    scheduler = start("a", settings)
    step(scheduler, "a", new="a", told={"a": outcome(entry, 2)})
    assert "1 of 4" in scheduler.refused["a"]
    unedited = start("b")
    step(unedited, "b", new="b", told={"b": GONE})
    assert unedited.refused == {}


def test_an_asynchronous_output_is_completed_when_somebody_waits_for_it():
    inner = Plain()
    whole = Plain(get_output=lambda: inner)
    assert attach(whole, {"a": EDITED}, 0.002, [], deque()) is whole
    assert vars(inner) == {}
    assert whole.get_output().reweigh_report["requests"] == {"a": EDITED}
    assert attach(inner, {}, 0.0, [], deque()) is inner
    assert attach(None, {"a": EDITED}, 0.1, [], deque()) is None


def test_samples_of_one_request_speak_for_each_other():
    record = Record()
    for told in (EDITED, GONE, EDITED):
        record.hear(told, of_several=True)
    assert record.told == {"edited": False, "reason": "of one of its samples: gone"}


def stream_of(results):
    """What a chat's stream sends if the engine hands over one of ``results`` for each chunk."""

    async def original(request, result_generator):
        async for number in result_generator:
            yield f"data: {json.dumps({'chunk': number.count})}\n\n"
        yield "data: [DONE]\n\n"

    async def engine():
        for count, told in enumerate(results):
            yield Plain(count=count, kv_transfer_params=told and {"reweigh": told})

    async def run():
        return [event async for event in streamed(original)(None, result_generator=engine())]

    return asyncio.run(run())


def test_a_stream_says_its_outcome_once_and_again_if_it_changes():
    events = stream_of([EDITED, EDITED, GONE, GONE])
    assert events[-1] == "data: [DONE]\n\n"
    told = [json.loads(event[6:]).get("kv_transfer_params") for event in events[:-1]]
    assert told == [{"reweigh": EDITED}, None, {"reweigh": GONE}, None]
    assert "kv_transfer_params" not in "".join(stream_of([None, None]))


def test_a_stream_with_an_inner_generator_says_the_same():
    """From 0.33 on, the stream serializes chunks of an inner generator, whose last one has the parameters by itself."""

    class Chat:
        async def chat_completion_stream_generator(self, request, result_generator, request_id):
            async for chunk in self.chat_completion_stream_generator_raw(
                request, result_generator, request_id
            ):
                yield f"data: {json.dumps(chunk)}\n\n"
            yield "data: [DONE]\n\n"

        async def chat_completion_stream_generator_raw(self, request, result_generator, request_id):
            async for result in result_generator:
                last = {"kv_transfer_params": result.kv_transfer_params} if result.finished else {}
                yield {"id": request_id, **last}

    async def engine():
        for count in range(3):
            told = {"other": 1, "reweigh": EDITED}
            yield Plain(finished=count == 2, kv_transfer_params=told)

    async def run():
        wrapped = streamed(Chat.chat_completion_stream_generator)
        return [event async for event in wrapped(Chat(), {}, engine(), request_id="a")]

    *events, done = asyncio.run(run())
    assert done == "data: [DONE]\n\n"
    told = [json.loads(event[6:]).get("kv_transfer_params") for event in events]
    assert told == [{"reweigh": EDITED}, None, {"other": 1, "reweigh": EDITED}]


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
