"""What cannot be edited is refused, or told; never left unsaid."""

from __future__ import annotations

import shutil

import pytest
from harness import OFF, V2, engine_config, reference_folder, running, told

from reweigh.errors import InputError, MismatchError, UnsupportedError

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

    with running(world, worker_cls="reweigh.engines.vllm.worker.ReweighWorker") as engine:
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
        with pytest.raises(VLLMValidationError, match="argument"):
            engine.answer_with({"reweigh_bta": 1})
        with pytest.raises(VLLMValidationError, match="beam search"):
            engine.llm.beam_search(world.prompts([0]), BeamSearchParams(beam_width=2, max_tokens=4))


def test_nothing_happens_without_the_section(world):
    from vllm.exceptions import VLLMValidationError

    with running(world, additional_config={}) as engine:
        answer = engine.answer_with(None)
        assert list(answer.outputs[0].token_ids) == world.cases[0]["plain"][: world.tokens]
        assert told(answer) is None
        assert not engine.worker.model_runner.use_aux_hidden_state_outputs
        with pytest.raises(VLLMValidationError, match="without"):
            engine.answer_with(OFF)


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
        ({"additional_config": {"rewiegh": {}}}, InputError, "rewiegh"),
        ({"model_impl": "transformers"}, UnsupportedError, "transformers backend"),
        ({"weight_transfer_config": {"backend": "nccl"}}, UnsupportedError, "replaced"),
    ],
)
def test_engines_that_cannot_be_served_are_refused_before_they_load(world, options, error, reason):
    with pytest.raises(error, match=reason):
        engine_config(world, **options)


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
    with pytest.raises(MismatchError, match="1 of 123"):
        engine_config(world, model=str(tmp_path / "other"))
    engine_config(world, model=str(tmp_path / "other"), reweigh={"force": True})
