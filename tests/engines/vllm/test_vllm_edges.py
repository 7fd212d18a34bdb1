"""Where the engine meets its users: what is refused, how a request is prepared, how its outcome is told."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace as Plain

import pytest

from reweigh.engines.vllm import plugin
from reweigh.engines.vllm.config import MARK, Settings
from reweigh.engines.vllm.frontend import bear_llvmlite, prepare
from reweigh.engines.vllm.outputs import complete
from reweigh.engines.vllm.pairing import _as_called
from reweigh.engines.vllm.refusals import check_engine
from reweigh.engines.vllm.report import Ledger, attach, outcome, tell
from reweigh.engines.vllm.served import check_family, visual_positions
from reweigh.engines.vllm.store import Entry
from reweigh.engines.vllm.working import tie
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


def test_a_worker_keeps_its_weights():
    levels = []
    worker = Plain(
        load_model=None,
        sleep=lambda level=1: levels.append(level),
        reload_weights=lambda: levels.append("new"),
    )
    tie(worker, SETTINGS)
    worker.sleep()
    worker.sleep(level=1)
    for call in (lambda: worker.sleep(2), worker.reload_weights):
        with pytest.raises(UnsupportedError, match="start"):
            call()
    with pytest.raises(UnsupportedError) as caught:
        worker.sleep(level=2)
    assert "wake_up" in caught.value.hint
    assert levels == [1, 1]


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


def test_a_request_to_an_engine_without_reweigh_is_refused_only_if_it_asks():
    silent = request({"other": 1})
    prepare(silent, None, 0.0, "raw_logprobs")
    assert silent.sampling_params.extra_args == {"other": 1}
    with pytest.raises(InputError, match="without"):
        prepare(request({"reweigh_beta": 1.0}), None, 0.0, "raw_logprobs")


def test_beam_search_is_refused_where_it_would_not_see_edits():
    beam = {"max_tokens": 1, "logprobs": 4, "detokenize": False}
    with pytest.raises(InputError, match="beam search"):
        prepare(request(**beam), SETTINGS, 1.1, "raw_logprobs")
    prepare(request(**beam), SETTINGS, 1.1, "processed_logprobs")
    prepare(request({"reweigh": "off"}, **beam), SETTINGS, 1.1, "raw_logprobs")
    prepare(request(max_tokens=1, logprobs=4), SETTINGS, 1.1, "raw_logprobs")


def edited() -> Entry:
    return Entry(keys=("k",), positions=[1], beta=1.1, prompt=4, source="measured", seconds=0.0125)


def running(name: str, beta: float = 1.1):
    return Plain(request_id=name, sampling_params=Plain(extra_args={MARK: beta}))


class Output(Plain):
    """As vLLM's: a plain dataclass that travels between processes by pickle."""


@pytest.mark.parametrize("wrapped", [None, "model_runner_output", "_model_runner_output"])
def test_outcomes_travel_from_worker_to_output(wrapped):
    inner = Output()
    whole = inner if wrapped is None else Plain(**{wrapped: inner})
    failed = Entry(keys=("k",), positions=[1], beta=1.1, prompt=4, reason="gone")
    assert attach(whole, {"a": edited(), "b": failed}, 0.002) is whole
    ledger = Ledger()
    assert ledger.note(pickle.loads(pickle.dumps(inner))) == 2.0
    told = Plain(kv_transfer_params={"other": 1})
    tell(told, ledger.of(running("a")), 2.0)
    assert told.kv_transfer_params["other"] == 1
    assert told.kv_transfer_params["reweigh"] == {
        "edited": True,
        "beta": 1.1,
        "evidence": "measured",
        "evidence_ms": 12.5,
        "step_ms": 2.0,
    }
    assert ledger.of(running("b")) == {"edited": False, "reason": "gone"}
    ledger.forget({"b": 1})
    assert set(ledger.known) == {"b"}


def test_a_request_of_which_nothing_is_known_counts_as_not_edited():
    ledger = Ledger()
    assert ledger.note(Output()) is None
    assert not ledger.of(running("silent"))["edited"]
    assert ledger.of(running("off", 0.0)) is None
    assert ledger.of(Plain(request_id="pooled", sampling_params=None)) is None


def test_an_output_without_news_is_left_alone():
    shared = Output()
    assert attach(shared, {}, 0.0) is shared
    assert vars(shared) == {}
    assert attach(None, {"a": edited()}, 0.1) is None
    assert outcome(edited())["edited"]


def test_an_output_that_carries_no_outcome_is_said_not_to_be_edited():
    asked = {"a": True, "b": True}
    told_already = Plain(request_id="a", kv_transfer_params={"reweigh": {"edited": True}})
    silent, other = (
        Plain(request_id="b", kv_transfer_params=None),
        Plain(request_id="c", kv_transfer_params=None),
    )
    assert complete(asked, [told_already, silent, other], {}) == ["a", "b"]
    assert told_already.kv_transfer_params == {"reweigh": {"edited": True}}
    assert not silent.kv_transfer_params["reweigh"]["edited"]
    assert other.kv_transfer_params is None
    assert complete(asked, [told_already], {}) == []


def test_an_output_of_several_samples_speaks_for_all_of_them():
    """The last sample's output stands for the whole request."""
    parent, other = Plain(), Plain()
    outputs = [
        Plain(request_id=name, kv_transfer_params={"reweigh": dict(told)})
        for name, told in (
            ("a", {"edited": True}),
            ("b", {"edited": False, "reason": "gone"}),
            ("c", {"edited": True}),
            ("d", {"edited": True}),
        )
    ]
    parents = {"a": parent, "b": parent, "c": parent, "d": other}
    assert complete(dict.fromkeys("abcd", True), outputs, parents) == [*"abcd"]
    said = [output.kv_transfer_params["reweigh"] for output in outputs]
    assert [one["edited"] for one in said] == [True, False, False, True]
    assert said[2]["reason"] == "of one of its samples: gone"


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
    sized = Plain(data={"image_sizes": Plain(data=[56, 56])}, mm_position=None)
    found = visual_positions(config, tokens, [sized])
    newlines = {1 + base + row * (cols + 1) + cols for row in range(rows)}
    assert set(found) == set(range(1, 1 + length)) - newlines
    with pytest.raises(UnsupportedError, match="prefix cache"):
        visual_positions(config, tokens, [Plain(data=None, mm_position=None)])


class Owner:
    """A class whose method the plugin follows."""

    def made(self, value):
        return value + 1


def test_following_a_method_twice_changes_nothing():
    seen = []
    for _ in range(2):
        plugin._after(Owner, "made", lambda owner, result: seen.append(result))
    assert Owner().made(1) == 2
    assert seen == [2]


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
