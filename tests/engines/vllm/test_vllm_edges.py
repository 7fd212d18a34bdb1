"""Where the engine meets its users: what is refused, how a request is prepared, how its outcome is told."""

from __future__ import annotations

import pickle
import sys
from collections import deque
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest

from reweigh.engines.vllm import chats, plugin
from reweigh.engines.vllm.chats import Reply
from reweigh.engines.vllm.config import MARK, Settings
from reweigh.engines.vllm.frontend import bear_llvmlite, prepare
from reweigh.engines.vllm.metrics import Metrics
from reweigh.engines.vllm.outputs import Outputs
from reweigh.engines.vllm.pairing import _as_called
from reweigh.engines.vllm.refusals import check_engine
from reweigh.engines.vllm.report import Ledger, attach, message_of, outcome, tell
from reweigh.engines.vllm.scheduling import Telling
from reweigh.engines.vllm.served import Sizes, check_family, visual_positions
from reweigh.engines.vllm.store import Entry
from reweigh.engines.vllm.working import Reweighing
from reweigh.errors import InputError, UnsupportedError

SETTINGS = Settings(table="t")


def engine(**changes):
    parts = {
        "speculative_config": None,
        "use_v2_model_runner": True,
        "lora_config": None,
        "kv_transfer_config": None,
        "ec_transfer_config": None,
        "parallel_config": Plain(pipeline_parallel_size=1, prefill_context_parallel_size=1),
        "scheduler_config": Plain(scheduler_cls=None),
        "load_config": Plain(load_format="auto"),
        "model_config": Plain(
            runner_type="generate", is_multimodal_model=True, model="m", hf_config=Plain(model_type="llava")
        ),
    }
    return Plain(**{**parts, **changes})


def model(**changes):
    parts = {"runner_type": "generate", "is_multimodal_model": True, "model": "m"}
    return Plain(**{**parts, "hf_config": Plain(model_type="llava"), **changes})


def test_a_plain_engine_is_served():
    check_engine(engine(), SETTINGS, on_cpu=True)
    check_engine(engine(speculative_config=Plain(method="ngram")), SETTINGS, on_cpu=True)
    for name in ("quantization_config", "compression_config"):
        stored = Plain(model_type="llava", **{name: {"quant_method": "awq"}})
        within = Plain(model_type="llava", text_config=stored)
        for own in (stored, within):
            check_engine(engine(model_config=model(quantization="awq", hf_config=own)), SETTINGS, on_cpu=True)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_config": model(runner_type="pooling")}, "pooling"),
        ({"speculative_config": Plain(method="ngram"), "use_v2_model_runner": False}, "V1"),
        ({"speculative_config": Plain(method="eagle3")}, "eagle3"),
        ({"parallel_config": Plain(pipeline_parallel_size=2)}, "pipeline"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, prefill_context_parallel_size=2)}, "context"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, enable_batch_sharded_sampling=True)}, "sharded"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, enable_dbo=True)}, "overlap"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, ubatch_size=2)}, "ubatch_size"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, worker_cls="mine.Worker")}, "worker class"),
        ({"scheduler_config": Plain(scheduler_cls="mine.Scheduler")}, "scheduler class"),
        ({"lora_config": Plain()}, "LoRA"),
        ({"kv_transfer_config": Plain()}, "elsewhere"),
        ({"ec_transfer_config": Plain()}, "encoding"),
        ({"load_config": Plain(load_format="dummy")}, "dummy"),
        ({"model_config": model(quantization="fp8")}, "quantises"),
        ({"weight_transfer_config": Plain()}, "replaced"),
        ({"model_config": model(using_transformers_backend=lambda: True)}, "transformers backend"),
        ({"model_config": model(is_multimodal_model=False)}, "no images"),
        ({"model_config": model(hf_config=Plain(model_type="instructblip"))}, "InstructBLIP"),
        ({"model_config": model(hf_config=Plain(model_type="mllama"))}, "cross-attention"),
        ({"model_config": model(hf_config=Plain(model_type="new_vl"))}, "compared"),
    ],
)
def test_what_cannot_be_edited_right_is_refused_with_the_reason(changes, reason):
    with pytest.raises(UnsupportedError, match=reason):
        check_engine(engine(**changes), SETTINGS, on_cpu=False)


def test_gemma3_is_refused_on_a_cpu_only():
    check_family(Plain(model_type="gemma3"), on_cpu=False)
    with pytest.raises(UnsupportedError, match="CPU attention"):
        check_family(Plain(model_type="gemma3"), on_cpu=True)


def test_observation_and_speculation_do_not_go_together():
    with pytest.raises(UnsupportedError, match="plain decoding"):
        check_engine(engine(speculative_config=Plain(method="ngram")), Settings(observe=(1,)), on_cpu=True)


class Bare:
    """A worker of vLLM's."""

    def __init__(self):
        self.levels = []

    def sleep(self, level=1):
        self.levels.append(level)

    def reload_weights(self):
        self.levels.append("new")


class Worker(Reweighing, Bare):
    """The same with reweigh."""


def test_a_worker_keeps_its_weights():
    worker, bare = Worker(), Worker()
    worker.reweigh = object()
    worker.sleep()
    worker.sleep(level=1)
    for call in (lambda: worker.sleep(2), worker.reload_weights):
        with pytest.raises(UnsupportedError, match="start"):
            call()
    with pytest.raises(UnsupportedError) as caught:
        worker.sleep(level=2)
    assert "wake_up" in caught.value.hint
    assert worker.levels == [1, 1]
    bare.sleep(2)
    bare.reload_weights()
    assert bare.levels == [2, "new"]  # without the section it is vLLM's worker


def test_what_vllm_gives_the_image_processor_at_each_call_is_part_of_its_settings():
    settings = {"size": {"height": 9}, "do_resize": True, "backend": "pil"}
    given = {"use_fast": False, "size": {"height": 4}, "images_kwargs": {"do_resize": False}, "other": 1}
    called = _as_called(settings, Plain(multimodal_config=Plain(mm_processor_kwargs=given)))
    assert called == {"size": {"height": 4}, "do_resize": False, "backend": "pil"}
    assert _as_called(settings, Plain(multimodal_config=Plain(mm_processor_kwargs=None))) == settings
    assert given["images_kwargs"] == {"do_resize": False}


def request(extra=None, *, images=True, embeddings=None, **params):
    plain = {"extra_args": extra, "max_tokens": 9, "logprobs": None, "detokenize": True}
    asked = Plain(**{**plain, "skip_reading_prefix_cache": False, **params})
    return Plain(sampling_params=asked, mm_features=[object()] if images else None, prompt_embeds=embeddings)


def test_an_image_request_is_marked_and_computes_its_prompt():
    given = {"kept": 1}
    one = request(given)
    prepare(one, SETTINGS, 1.1, "raw_logprobs")
    assert one.sampling_params.extra_args == {"kept": 1, MARK: 1.1}
    assert one.sampling_params.skip_reading_prefix_cache
    assert given == {"kept": 1}  # the caller's own mapping is left alone


def test_switched_off_and_recalled_requests_read_the_prefix_cache():
    off, recalled, text = request({"reweigh": "off"}), request(), request(images=False)
    prepare(off, SETTINGS, 1.1, "raw_logprobs")
    prepare(recalled, Settings(table="t", prefix_cache="recall"), 1.1, "raw_logprobs")
    prepare(text, SETTINGS, 1.1, "raw_logprobs")
    assert off.sampling_params.extra_args[MARK] == 0.0
    assert recalled.sampling_params.extra_args[MARK] == 1.1
    assert text.sampling_params.extra_args is None
    assert not any(one.sampling_params.skip_reading_prefix_cache for one in (off, recalled, text))


def test_a_prompt_of_embeddings_is_marked_so_that_its_outcome_is_reported():
    one = request(images=False, embeddings=object())
    prepare(one, SETTINGS, 1.1, "raw_logprobs")
    assert one.sampling_params.extra_args == {MARK: 1.1}


def test_the_steps_of_a_beam_search_ask_what_their_request_asks(monkeypatch):
    """vLLM drops extra arguments on the way."""
    reply = Reply()
    monkeypatch.setattr(chats, "current", lambda: reply)
    for asked, beta in (({"reweigh": "off"}, 0.0), ({"reweigh_beta": 9}, 9.0), ({}, 1.1)):
        reply.arguments = asked
        one = request(max_tokens=1, logprobs=4, detokenize=False)
        prepare(one, SETTINGS, 1.1, "processed_logprobs")
        assert one.sampling_params.extra_args[MARK] == beta
        whole = request()
        prepare(whole, SETTINGS, 1.1, "processed_logprobs")
        assert whole.sampling_params.extra_args[MARK] == 1.1


def test_beam_search_is_refused_where_it_would_not_see_edits():
    beam = {"max_tokens": 1, "logprobs": 4, "detokenize": False}
    with pytest.raises(InputError, match="beam search"):
        prepare(request(**beam), SETTINGS, 1.1, "raw_logprobs")
    prepare(request(**beam), SETTINGS, 1.1, "processed_logprobs")
    prepare(request({"reweigh": "off"}, **beam), SETTINGS, 1.1, "raw_logprobs")
    prepare(request(max_tokens=1, logprobs=4), SETTINGS, 1.1, "raw_logprobs")


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


@pytest.mark.parametrize("is_async", [False, True])
def test_outcomes_travel_from_worker_to_output(is_async):
    inner = Output()
    whole = Waiting(inner) if is_async else inner
    failed = Entry(keys=("k",), positions=[1], beta=1.1, prompt=4, reason="gone")
    assert attach(whole, message_of({"a": edited(), "b": failed}, 0.002), [], deque()) is whole
    if is_async:
        assert vars(inner) == {}  # nothing is known before somebody waits
        assert whole.get_output() is inner
    ledger = Ledger()
    for name in "abc":
        ledger.expect(name)
    ledger.start("ab")
    ledger.note(pickle.loads(pickle.dumps(inner)))
    assert ledger.untold == {"a", "b"}
    told = Plain(kv_transfer_params={"other": 1})
    tell(told, ledger.take("a"), reweigh_steps_ms=ledger.steps(), nothing=None)
    assert told.kv_transfer_params == {
        "other": 1,
        "reweigh": {"edited": True, "beta": 1.1, "layer": 2, "evidence": "measured", "evidence_ms": 12.5},
        "reweigh_steps_ms": [2.0],
    }
    assert ledger.steps() == []
    assert ledger.untold == {"b"}
    assert ledger.take("b") == {"edited": False, "reason": "gone"}
    ledger.forget("ab")
    assert set(ledger.known) == {"c"}


def test_a_request_of_which_nothing_is_known_counts_as_not_edited():
    ledger = Ledger()
    ledger.note(Output())
    ledger.expect("silent")
    ledger.start(["silent", "off"])
    assert ledger.untold == {"silent"}
    assert not ledger.take("silent")["edited"]


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


class TellingScheduler(Telling, Scheduler):
    """The same with reweigh."""


def step(scheduler, rows, *, new=(), ends=(), told=(), finished=()):
    """The outcomes in one step's outputs, by request, and their order."""
    message = Output(ends=ends)
    attach(message, message_of(dict(told), 0.001), [], deque())
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


def test_an_outcome_is_told_first_and_last_and_leads_its_step():
    scheduler = TellingScheduler()
    for name, beta in (("a", 1.0), ("b", 0.0), ("c", 1.0)):
        scheduler.add_request(Plain(request_id=name, sampling_params=Plain(extra_args={MARK: beta})))
    assert step(scheduler, "", new="a") == ("", {})  # a first chunk of a prompt has no output
    assert step(scheduler, "ba", told=[("a", edited())]) == ("ab", {"a": True})
    assert step(scheduler, "bca", new="c") == ("cba", {"c": False})  # of which the worker said nothing
    assert step(scheduler, "bca") == ("bca", {})
    assert step(scheduler, "bca", told=[("c", edited())]) == ("cba", {"c": True})
    assert step(scheduler, "bca", ends="ab") == ("abc", {"a": True})
    assert step(scheduler, "c", finished="ab") == ("c", {})
    assert set(scheduler.ledger.known) == {"c"}


def test_an_output_without_news_is_left_alone():
    shared = Output()
    assert attach(shared, message_of({}, 0.0), [], deque()) is shared
    assert vars(shared) == {}
    assert attach(None, message_of({"a": edited()}, 0.1), [], deque()) is None
    assert outcome(edited())["edited"]


class Front:
    """As vLLM's output processor: a request's output, in a queue or returned, with what the engine put into it."""

    def __init__(self):
        self.request_states, self.external_req_ids, self.log_stats = {}, {}, False

    def add_request(self, request, parent=None, queue=None):
        name = request.request_id
        self.request_states[name] = Plain(parent_req=parent, queue=queue, external_req_id=name.upper())
        self.external_req_ids[name.upper()] = [name]

    def process_outputs(self, outputs):
        made = []
        for output in outputs:
            state = self.request_states[output.request_id]
            one = Plain(
                request_id=state.external_req_id,
                kv_transfer_params=output.kv_transfer_params,
                outputs=[Plain(finish_reason=output.finish_reason)],
                finished=output.finished,
            )
            made.append(one) if state.queue is None else state.queue.put(one)
            if output.finished:
                del self.request_states[output.request_id]
                del self.external_req_ids[state.external_req_id]
        return Plain(request_outputs=made, reqs_to_abort=[])

    def abort_requests(self, names):
        for name in names:
            self.external_req_ids.pop(self.request_states.pop(name).external_req_id)


def front(refuses=False):
    processor = Front()
    return processor, Outputs(processor, Metrics("m", enabled=False), refuses=refuses)


def asked(name, beta=1.0):
    return Plain(request_id=name, sampling_params=Plain(extra_args={MARK: beta}))


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
    assert not follower.records
    assert not follower.offline
    processor.add_request(asked("d"))
    processor.abort_requests(["d"])
    assert not follower.records
    assert not follower.offline


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
    reply = Reply()
    monkeypatch.setattr(chats, "current", lambda: reply)
    monkeypatch.setattr(chats, "refusal", ValueError)
    processor, _ = front(refuses=True)
    put = []
    processor.add_request(asked("a"), None, Plain(put=put.append))
    assert not reply.is_settled
    processor.process_outputs([made("a", LOST, "error")])
    assert reply.is_settled
    assert reply.refused
    assert reply.header == b"unedited; gone"
    [error] = put
    assert isinstance(error, ValueError)
    assert "gone" in str(error)


def test_newlines_are_told_apart_by_the_layout_of_the_family():
    config = Plain(
        model_type="llava_next",
        image_token_id=9,
        image_token_index=9,
        vision_config=Plain(image_size=28, patch_size=7),
        image_grid_pinpoints=[[28, 56], [56, 28], [56, 56]],
    )
    base, rows, cols = 16, 8, 8
    length = base + rows * (cols + 1)
    tokens = [1, *[9] * length, 2]
    sized = Plain(data={"image_sizes": Plain(data=[56, 56])}, mm_position=None, identifier="seen")
    sizes = Sizes()
    found = visual_positions(config, tokens, [sized], sizes)
    newlines = {1 + base + row * (cols + 1) + cols for row in range(rows)}
    assert set(found) == set(range(1, 1 + length)) - newlines
    stripped = Plain(data=None, mm_position=None, identifier="seen")
    assert visual_positions(config, tokens, [stripped], sizes) == found  # its size is remembered
    stripped.identifier = "other"
    with pytest.raises(UnsupportedError, match="prefix cache"):
        visual_positions(config, tokens, [stripped], sizes)


def test_sizes_are_remembered_within_a_bound():
    sizes = Sizes(limit=2)
    for name in "abc":
        sizes.of(Plain(data={"image_sizes": Plain(data=[1, 2])}, identifier=name))
    assert sizes.of(Plain(data=None, identifier="c")).tolist() == [1, 2]
    with pytest.raises(UnsupportedError, match="size"):
        sizes.of(Plain(data=None, identifier="a"))


class EngineArgs:
    """As vLLM's."""

    def create_engine_config(self, sections=None):
        return Plain(additional_config=sections)


def beside(monkeypatch, version="0.32.1", args=EngineArgs):
    """A vLLM of some version, with its own EngineArgs."""
    own = type("EngineArgs", (), dict(vars(args))) if args is not None else None
    monkeypatch.setitem(sys.modules, "vllm", Plain(__version__=version, __path__=[]))
    monkeypatch.setitem(sys.modules, "vllm.engine", ModuleType("vllm.engine"))
    module = ModuleType("vllm.engine.arg_utils")
    if own is not None:
        module.EngineArgs = own
    monkeypatch.setitem(sys.modules, "vllm.engine.arg_utils", module)
    return own


def test_registering_twice_looks_once(monkeypatch):
    own, seen = beside(monkeypatch), []
    monkeypatch.setattr(plugin, "look", seen.append)
    plugin.register()
    plugin.register()
    own().create_engine_config({"a": 1})
    assert [config.additional_config for config in seen] == [{"a": 1}]


@pytest.mark.parametrize("version", ["0.32.0", "0.33.0", "1.0", "0.320.1"])
def test_an_engine_without_a_section_runs_with_any_vllm(monkeypatch, version):
    own = beside(monkeypatch, version)
    plugin.register()
    for sections in (None, {}, {"other": 1}):
        assert own().create_engine_config(sections).additional_config == sections


@pytest.mark.parametrize("args", [None, object])
def test_a_vllm_in_which_everything_moved_is_left_alone(monkeypatch, caplog, args):
    beside(monkeypatch, "9.9", args)
    plugin.register()
    assert "9.9" in caplog.text


@pytest.mark.parametrize("version", ["0.33.0", "0.320.1", "0.31.9"])
def test_a_configured_engine_of_an_unknown_vllm_is_refused_with_the_tested_range(monkeypatch, version):
    own = beside(monkeypatch, version)
    plugin.register()
    with pytest.raises(UnsupportedError, match=r"0\.32\.x") as caught:
        own().create_engine_config({"reweigh": {"table": "t"}})
    assert version in caught.value.message


def test_llvmlite_s_library_can_be_looked_at():
    """As vLLM looks at every value of every module for kernels."""
    ffi = pytest.importorskip("llvmlite.binding.ffi")
    bear_llvmlite()
    bear_llvmlite()
    assert vars(ffi.lib).get("kernel") is None


@pytest.mark.parametrize(
    ("found", "allowed", "reason", "hint"),
    [
        (
            [],
            None,
            "vllm.general_plugins",
            "pip install",
        ),
        (["other"], None, "package", "PYTHONPATH"),
        (["reweigh"], ["other"], "VLLM_PLUGINS", "VLLM_PLUGINS"),
    ],
)
def test_a_plugin_that_vllm_would_not_load_is_reported(monkeypatch, found, allowed, reason, hint):
    offer(monkeypatch, found, allowed)
    with pytest.raises(UnsupportedError, match=reason) as caught:
        plugin.require_plugin()
    assert hint in caught.value.hint


@pytest.mark.parametrize("allowed", [None, ["other", "reweigh"]])
def test_a_plugin_that_vllm_loads_is_fine(monkeypatch, allowed):
    offer(monkeypatch, ["other", "reweigh"], allowed)
    plugin.require_plugin()


def offer(monkeypatch, names, allowed):
    """A vLLM beside which packages offer plugins of these names."""
    monkeypatch.setitem(sys.modules, "vllm", Plain(envs=Plain(VLLM_PLUGINS=allowed)))
    monkeypatch.setattr(plugin, "entry_points", lambda group: [Plain(name=name) for name in names])
