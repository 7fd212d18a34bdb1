"""What is refused at start and while an engine runs; live/test_outcomes.py has what a CPU can start."""

from __future__ import annotations

import sys
from types import ModuleType
from types import SimpleNamespace as Plain

import pytest

from reweigh.errors import MismatchError, UnsupportedError
from reweigh.world import table_path
from reweigh_vllm.installed import Reweighing, make_store
from reweigh_vllm.refusals import check_engine, check_family
from reweigh_vllm.settings import Settings

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
        ({"parallel_config": Plain(pipeline_parallel_size=1, prefill_context_parallel_size=2)}, "context"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, enable_batch_sharded_sampling=True)}, "sharded"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, enable_dbo=True)}, "overlap"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, ubatch_size=2)}, "ubatch_size"),
        ({"parallel_config": Plain(pipeline_parallel_size=1, worker_cls="mine.Worker")}, "worker class"),
        ({"scheduler_config": Plain(scheduler_cls="mine.Scheduler")}, "scheduler class"),
        ({"kv_transfer_config": Plain()}, "another engine"),
        ({"ec_transfer_config": Plain()}, "encoding"),
        ({"model_config": model(quantization="fp8")}, "quantizes"),
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


def with_envs(monkeypatch, **values):
    """A vLLM whose environment settings are these."""
    module, package = ModuleType("vllm.envs"), ModuleType("vllm")
    vars(module).update(values)
    package.envs = module
    monkeypatch.setitem(sys.modules, "vllm", package)
    monkeypatch.setitem(sys.modules, "vllm.envs", module)


def test_the_older_ray_executor_is_refused_where_there_is_one(monkeypatch):
    """vLLM 0.33 has dropped it, and the variable that chose it."""
    ray = engine(
        parallel_config=Plain(
            pipeline_parallel_size=1, prefill_context_parallel_size=1, distributed_executor_backend="ray"
        )
    )
    with_envs(monkeypatch)
    check_engine(ray, SETTINGS, on_cpu=True)
    with_envs(monkeypatch, VLLM_USE_RAY_V2_EXECUTOR_BACKEND=True)
    check_engine(ray, SETTINGS, on_cpu=True)
    with_envs(monkeypatch, VLLM_USE_RAY_V2_EXECUTOR_BACKEND=False)
    with pytest.raises(UnsupportedError, match="older Ray executor"):
        check_engine(ray, SETTINGS, on_cpu=True)


@pytest.mark.parametrize(
    ("blocks", "vocabulary", "reason"), [(1, 900, "1 decoder blocks"), (4, 5, "5 tokens")]
)
def test_even_a_forced_table_must_lie_inside_the_model(blocks, vocabulary, reason):
    config = Plain(model_type="llava", get_text_config=lambda: Plain(num_hidden_layers=4))
    shape = Plain(hf_config=config, dtype="torch.float32", get_vocab_size=lambda: vocabulary)
    forced = Settings(table=str(table_path()), force=True)
    with pytest.raises(MismatchError, match=reason):
        make_store(forced, shape, None, Plain(layers=range(blocks)), "cpu")
