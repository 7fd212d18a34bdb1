"""What cannot be edited is refused, or told; never left unsaid."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import V2, Reference, arguments, engine_config, reference_folder, running, told

from reweigh.errors import ArtifactError, InputError, MismatchError, UnsupportedError
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.tables.table import ReferenceTable

PREFIX = {"block_size": 32, "enable_prefix_caching": True}


def test_recall_reads_the_prefix_cache_and_still_edits(world):
    """Requests that are off are measured too, so the first that is on finds prefix and evidence."""
    with running(world, reweigh={"prefix_cache": "recall"}, **PREFIX) as engine:
        engine.check(["plain"] * 3)
        again = engine.check(["edited", "half", "edited"])
        assert all(answer.num_cached_tokens > 0 for answer in again)
        assert {told(answer)["evidence"] for answer in again} == {"recalled"}


def test_equal_prompts_that_arrive_together_and_one_that_gains_an_image(world):
    """They read each other's blocks while these are being computed: of evidence nothing may be missing."""
    from vllm import SamplingParams

    with running(world, reweigh={"prefix_cache": "recall"}, max_num_batched_tokens=96, **PREFIX) as engine:
        together = engine.check(["edited", "half", "edited", "plain"], [0, 0, 0, 0], tokens=6)
        assert together[1].num_cached_tokens > 0
        engine.check(["edited"], [2], tokens=6)
        params = SamplingParams(temperature=0, max_tokens=world.tokens)
        [pair] = engine.llm.generate(world.prompts([world.pair]), params, use_tqdm=False)
        assert pair.num_cached_tokens > 0
        assert list(pair.prompt_token_ids) == world.pair["prompt_ids"]
        assert list(pair.outputs[0].token_ids) == world.pair["edited"][: world.tokens]
        assert world.pair["edited"][: world.tokens] != world.pair["plain"][: world.tokens]


def test_a_conversation_of_llava_next_gains_an_image():
    """The first picture is covered by the prefix cache, so vLLM does not hand it over again; its size is needed."""
    from vllm import SamplingParams

    reference = Reference("llava_next")
    first = reference.cases[0]
    both = {"prompt": f"{first['prompt']} {first['prompt']}", "images": [0, 1]}
    params, answers = SamplingParams(temperature=0, max_tokens=8), []
    for mode in ("exact", "recall"):
        with running(reference, reweigh={"prefix_cache": mode}, max_model_len=1024, **PREFIX) as engine:
            engine.check(["edited"], [0], tokens=8)
            answers += engine.llm.generate(reference.prompts([both]), params, use_tqdm=False)
    ids = list(answers[1].prompt_token_ids)
    image = first["prompt_ids"][len(first["prompt_ids"]) // 2]  # the middle of a prompt that is mostly image
    end = next(place for place, token in enumerate(ids) if place > ids.index(image) and token != image)
    assert answers[1].num_cached_tokens >= end
    assert told(answers[1])["edited"]
    assert list(answers[1].outputs[0].token_ids) == list(answers[0].outputs[0].token_ids)


def test_evidence_that_is_gone_is_reported_and_the_text_is_the_base_model_s(world):
    with running(world, reweigh={"prefix_cache": "recall", "memory_mb": 0}, **PREFIX) as engine:
        engine.check(["plain", "edited"])
        again = engine.answer(["edited", "edited", "plain"])
        for case, answer in enumerate(again[:2]):
            assert "prefix cache" in told(answer)["reason"]
            assert list(answer.outputs[0].token_ids) == world.cases[case]["plain"][: world.tokens]
        engine.check(["edited"], [3])  # a new picture is measured


def test_such_a_request_can_be_refused_instead(world):
    lost = {"prefix_cache": "recall", "memory_mb": 0, "unedited": "refuse"}
    with running(world, reweigh=lost, **PREFIX) as engine:
        engine.check(["plain"])
        refused, plain, other = engine.answer(["edited", "plain", "edited"], [0, 0, 4])
        assert refused.outputs[0].finish_reason == "error"
        assert len(refused.outputs[0].token_ids) == 0
        assert not told(refused)["edited"]
        assert list(plain.outputs[0].token_ids) == world.cases[0]["plain"][: world.tokens]
        assert list(other.outputs[0].token_ids) == world.cases[4]["edited"][: world.tokens]
        engine.check(["edited"], [5])


def test_a_named_worker_and_the_plugin_act_once(world):
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import BeamSearchParams

    with running(world, worker_cls="reweigh_vllm.worker.ReweighWorker") as engine:
        engine.check(["edited", "plain", "half"])
        assert type(engine.worker).__name__ == "ReweighWorker"
        runner = engine.worker.model_runner
        pipeline = getattr(runner.sampler, "logits_processors", None)
        if pipeline is None:
            pipeline = runner.input_batch.logitsprocs.non_argmax_invariant
        assert [type(one).__module__.startswith("reweigh") for one in pipeline].count(True) == 1
        assert type(pipeline[0]).__name__ == "Processor"
        with pytest.raises(UnsupportedError, match="weights"):
            engine.llm.collective_rpc("reload_weights")
        engine.check(["half"])
        with pytest.raises(VLLMValidationError, match="beta"):
            engine.answer_with({"reweigh_beta": -1})
        for slip in ("reweigh_bta", "rewiegh_beta"):
            with pytest.raises(VLLMValidationError, match=slip):
                engine.answer_with({slip: 1})
        with pytest.raises(VLLMValidationError, match="1_0"):
            engine.answer_with({"reweigh_beta": "1_0"})
        with pytest.raises(VLLMValidationError, match="beam search"):
            engine.llm.beam_search(world.prompts([0]), BeamSearchParams(beam_width=2, max_tokens=4))


def test_an_engine_without_the_section_is_left_alone(world):
    """In a process of its own: nothing of vLLM is wrapped but the look, and nothing of the engine is imported."""
    found = subprocess.run(
        [sys.executable, Path(__file__).with_name("unconfigured.py"), json.dumps(arguments(world))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    report = json.loads(found.stdout.splitlines()[-1])
    assert report["wrapped"] == ["vllm.engine.arg_utils.EngineArgs.create_engine_config"]
    assert report["imported"] == ["reweigh_vllm", "reweigh_vllm.plugin"]
    assert report["tokens"] == world.cases[0]["plain"][: world.tokens]
    assert report["told"] is None


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"pipeline_parallel_size": 2, "distributed_executor_backend": "mp"}, UnsupportedError, "pipeline"),
        ({"enable_lora": True}, UnsupportedError, "LoRA"),
        ({"load_format": "dummy"}, UnsupportedError, "dummy"),
        ({"dtype": "bfloat16"}, MismatchError, "lens dtype"),
        ({"mm_processor_kwargs": {}}, MismatchError, "use_fast"),
        ({"reweigh": {"table": "nowhere"}}, Exception, "nowhere"),
        ({"mm_processor_kwargs": {"use_fast": False, "image_mean": [0, 0, 0]}}, MismatchError, "image_mean"),
        ({"reweigh": {"layer": 0}}, InputError, "layer 0"),
        ({"additional_config": {"rewiegh": {"table": "t"}}}, InputError, "rewiegh"),
        ({"additional_config": {"reweigh": None}}, InputError, "mapping"),
        ({"reweigh": {"observe": [1]}}, InputError, "observe"),
        ({"reweigh": {"sha256": "0" * 64}}, MismatchError, "fingerprint"),
        ({"worker_cls": "vllm.v1.worker.xpu_worker.XPUWorker"}, UnsupportedError, "worker class"),
        ({"scheduler_cls": "vllm.v1.core.sched.scheduler.Scheduler"}, UnsupportedError, "scheduler class"),
        ({"model_impl": "transformers"}, UnsupportedError, "transformers backend"),
        ({"weight_transfer_config": {"backend": "nccl"}}, UnsupportedError, "replaced"),
    ],
)
def test_engines_that_cannot_be_served_are_refused_before_they_load(world, options, error, reason):
    with pytest.raises(error, match=reason):
        engine_config(world, **options)


def test_an_executor_that_passes_the_worker_by_is_refused(world, monkeypatch):
    monkeypatch.setenv("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "0")
    with pytest.raises(UnsupportedError, match="Ray"):
        engine_config(world, distributed_executor_backend="ray")
    monkeypatch.setenv("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "1")
    engine_config(world, distributed_executor_backend="ray")


def test_a_section_of_somebody_else_stops_nothing(world):
    engine_config(world, additional_config={"reweight": {"alpha": 1}})


def test_a_vllm_that_was_not_tested_is_refused_by_name(world, monkeypatch):
    import vllm

    monkeypatch.setattr(vllm, "__version__", "0.34.1")
    with pytest.raises(UnsupportedError, match=r"0\.33, and this is vLLM 0\.34\.1"):
        engine_config(world)
    engine_config(world, additional_config={})


def test_a_point_that_cannot_be_is_refused(world, tmp_path):
    shutil.copytree(world.table, tmp_path / "table", dirs_exist_ok=True)
    layer = ReferenceTable.from_pretrained(world.table).layer
    record_point(tmp_path / "table", OperatingPoint(layer, 1e60, "tuned", 1))
    with pytest.raises(ArtifactError, match="beta"):
        engine_config(world, additional_config={"reweigh": {"table": str(tmp_path / "table")}})


@pytest.mark.skipif(V2, reason="V2 speculates")
def test_speculation_on_v1_is_refused(world):
    drafts = {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}
    with pytest.raises(UnsupportedError, match="V1"):
        engine_config(world, speculative_config=drafts)


@pytest.mark.parametrize(
    ("family", "reason"), [("gemma3", "CPU attention"), ("instructblip", "InstructBLIP")]
)
def test_families_that_cannot_be_served_are_refused_by_name(world, family, reason):
    with pytest.raises(Exception, match=reason):
        engine_config(world, model=str(reference_folder(family) / "checkpoint"))


def test_a_table_of_other_weights_is_refused(world, tmp_path):
    """One value of one weight is enough."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(world.checkpoint, tmp_path / "other")
    tensors = load_file(tmp_path / "other" / "model.safetensors")
    name = next(name for name in tensors if name.endswith("layers.1.mlp.up_proj.weight"))
    tensors[name] = tensors[name] + 0.25
    save_file(tensors, tmp_path / "other" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(MismatchError, match="8 of 984 sampled weights"):
        engine_config(world, model=str(tmp_path / "other"))
    engine_config(world, model=str(tmp_path / "other"), reweigh={"force": True})
