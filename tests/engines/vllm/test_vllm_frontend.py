"""What is refused at start, and how a request is prepared."""

from __future__ import annotations

import sys
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest

from reweigh.engines.vllm import chats, plugin
from reweigh.engines.vllm.capture import visual_positions
from reweigh.engines.vllm.chats import Reply
from reweigh.engines.vllm.config import MARK, READ_FOR, Settings, Source
from reweigh.engines.vllm.frontend import patch_llvmlite, prepare
from reweigh.engines.vllm.refusals import check_engine, check_family
from reweigh.engines.vllm.tables import _as_called
from reweigh.engines.vllm.working import Reweighing
from reweigh.errors import InputError, UnsupportedError
from reweigh.runtime.memory import Memory

RAW = Plain(logprobs_mode="raw_logprobs", skip_tokenizer_init=False)
PROCESSED = Plain(logprobs_mode="processed_logprobs", skip_tokenizer_init=False)
SOURCES = {"default": Source(table="t")}
SETTINGS = Settings(sources=SOURCES, resolved={"default": (2, "first")})
RECALL = Settings(sources=SOURCES, resolved={"default": (2, "first")}, prefix_cache="recall")
TABLES = {
    "default": Plain(sha256="first", point=Plain(beta=1.1)),
    "other": Plain(sha256="second", point=Plain(beta=0.6)),
}


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
        ({"kv_transfer_config": Plain()}, "another engine"),
        ({"ec_transfer_config": Plain()}, "encoding"),
        ({"load_config": Plain(load_format="dummy")}, "dummy"),
        ({"model_config": model(quantization="fp8")}, "quantizes"),
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
        check_engine(
            engine(speculative_config=Plain(method="ngram")), Settings(sources={}, observe=(1,)), on_cpu=True
        )


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
    features = [object()] if images else None
    return Plain(sampling_params=asked, mm_features=features, prompt_embeds=embeddings, cache_salt=None)


def test_an_image_request_is_marked_and_computes_its_prompt():
    given = {"kept": 1}
    one = request(given)
    prepare(one, SETTINGS, TABLES, RAW)
    assert one.sampling_params.extra_args == {"kept": 1, MARK: 1.1, READ_FOR: "first"}
    assert one.sampling_params.skip_reading_prefix_cache
    assert given == {"kept": 1}  # the caller's own mapping is left alone


def test_switched_off_and_recalled_requests_read_the_prefix_cache():
    off, recalled, text = request({"reweigh": "off"}), request(), request(images=False)
    prepare(off, SETTINGS, TABLES, RAW)
    prepare(recalled, RECALL, TABLES, RAW)
    prepare(text, SETTINGS, TABLES, RAW)
    assert off.sampling_params.extra_args[MARK] == 0.0
    assert recalled.sampling_params.extra_args[MARK] == 1.1
    assert text.sampling_params.extra_args is None
    assert not any(one.sampling_params.skip_reading_prefix_cache for one in (off, recalled, text))


def test_a_request_has_the_beta_of_the_table_that_it_names():
    one = request({"reweigh_table": "other"})
    prepare(one, SETTINGS, TABLES, RAW)
    assert one.sampling_params.extra_args == {"reweigh_table": "other", MARK: 0.6, READ_FOR: "second"}
    with pytest.raises(InputError, match="third") as caught:
        prepare(request({"reweigh_table": "third"}), SETTINGS, TABLES, RAW)
    assert "other" in caught.value.hint


def test_tables_other_than_the_first_have_their_own_part_of_the_prefix_cache():
    """Its evidence was read for one table; requests that are off are read for theirs, too."""
    salts = []
    for asked in (None, {"reweigh_table": "other"}, {"reweigh_table": "other", "reweigh": "off"}):
        one = request(asked)
        prepare(one, RECALL, TABLES, RAW)
        salts.append(one.cache_salt)
    assert salts == [None, "second", "second"]
    own = request({"reweigh_table": "other"})
    own.cache_salt = "user"
    prepare(own, RECALL, TABLES, RAW)
    assert own.cache_salt == "usersecond"
    exact = request({"reweigh_table": "other"})
    prepare(exact, SETTINGS, TABLES, RAW)
    assert exact.cache_salt is None


def test_a_prompt_of_embeddings_is_marked_so_that_its_outcome_is_reported():
    one = request(images=False, embeddings=object())
    prepare(one, SETTINGS, TABLES, RAW)
    assert one.sampling_params.extra_args == {MARK: 1.1, READ_FOR: "first"}


def test_the_steps_of_a_beam_search_ask_what_their_request_asks(monkeypatch):
    """vLLM drops extra arguments on the way."""
    reply = Reply("/v1/chat/completions", None)
    monkeypatch.setattr(chats, "current", lambda: reply)
    for asked, beta in (({"reweigh": "off"}, 0.0), ({"reweigh_beta": 9}, 9.0), ({}, 1.1)):
        reply.arguments = asked
        one = request(max_tokens=1, logprobs=4, detokenize=False)
        prepare(one, SETTINGS, TABLES, PROCESSED)
        assert one.sampling_params.extra_args[MARK] == beta
        whole = request()
        prepare(whole, SETTINGS, TABLES, PROCESSED)
        assert whole.sampling_params.extra_args[MARK] == 1.1


def test_beam_search_is_refused_where_it_would_not_see_edits():
    beam = {"max_tokens": 1, "logprobs": 4, "detokenize": False}
    with pytest.raises(InputError, match="beam search"):
        prepare(request(**beam), SETTINGS, TABLES, RAW)
    prepare(request(**beam), SETTINGS, TABLES, PROCESSED)
    prepare(request({"reweigh": "off"}, **beam), SETTINGS, TABLES, RAW)
    prepare(request(max_tokens=1, logprobs=4), SETTINGS, TABLES, RAW)


@pytest.mark.parametrize(
    ("asked", "params", "reason"),
    [
        ({"reweigh": "off"}, {}, "not edited"),
        ({}, {"n": 2}, "samples"),
        ({}, {"max_tokens": 1, "logprobs": 4, "detokenize": False}, "beam search"),
        ({}, {"detokenize": False}, "detokenized"),
        ({}, {}, "tokenizer"),
    ],
)
def test_evidence_of_tokens_is_refused_where_there_is_no_one_text(asked, params, reason):
    one = request({**asked, "reweigh_evidence": True}, **{"n": 1, **params})
    model = Plain(logprobs_mode="processed_logprobs", skip_tokenizer_init=reason == "tokenizer")
    with pytest.raises(InputError, match=reason):
        prepare(one, SETTINGS, TABLES, model)


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
    sizes = Memory(2)
    found = visual_positions(config, tokens, [sized], sizes)
    newlines = {1 + base + row * (cols + 1) + cols for row in range(rows)}
    assert set(found) == set(range(1, 1 + length)) - newlines
    stripped = Plain(data=None, mm_position=None, identifier="seen")
    assert visual_positions(config, tokens, [stripped], sizes) == found  # its size is remembered
    stripped.identifier = "other"
    with pytest.raises(UnsupportedError, match="prefix cache"):
        visual_positions(config, tokens, [stripped], sizes)


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
    patch_llvmlite()
    patch_llvmlite()
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
