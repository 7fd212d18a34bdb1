"""Tokens equal to the transformers engine's, greedy and in float32, whatever vLLM does to the batch."""

from __future__ import annotations

import shutil

import pytest
import torch
from harness import TOKENS, V2, Reference, engine_config, reference_folder, running, told

from reweigh.errors import MismatchError
from reweigh.tables.point import OperatingPoint
from reweigh.tables.store import record_point
from reweigh.tables.table import ReferenceTable
from reweigh_vllm import installed
from reweigh_vllm.taps import AuxTap, HookTap

ALL = ["edited"] * 6
MIXED = ["plain", "edited", "half", "edited", "plain", "half"]


@pytest.fixture(scope="module")
def plain_engine(world):
    with running(world, disable_log_stats=False) as engine:
        yield engine


def test_the_reference_tells_edits_apart(world):
    """Or equal tokens would prove nothing."""
    assert all(case["plain"] != case["edited"] for case in world.cases)
    assert sum(case["plain"][:TOKENS] != case["edited"][:TOKENS] for case in world.cases) >= 3
    assert sum(case["penalised"][:TOKENS] != case["edited"][:TOKENS] for case in world.cases) >= 3


def test_base_and_edited_requests_in_one_batch(plain_engine):
    plain_engine.check(["plain"] * 6)
    measured = plain_engine.check(ALL)
    assert {told(answer)["evidence"] for answer in measured} == {"measured"}
    again = plain_engine.check(MIXED)
    assert {said["evidence"] for answer in again if (said := told(answer))} == {"recalled"}
    assert told(again[2])["beta"] == plain_engine.reference.beta / 2


def test_counters_stand_in_vllms_metrics(plain_engine):
    plain_engine.check(ALL)
    plain_engine.check(MIXED)
    found = {(metric.name, tuple(metric.labels.items())): metric for metric in plain_engine.llm.get_metrics()}
    model = ("model_name", str(plain_engine.reference.checkpoint))
    edited = found["vllm:reweigh_requests", (model, ("edited", "true"))]
    measured = found["vllm:reweigh_evidence", (model, ("source", "measured"))]
    recalled = found["vllm:reweigh_evidence", (model, ("source", "recalled"))]
    assert edited.value == measured.value + recalled.value
    assert measured.value == 6
    assert recalled.value >= 4
    assert found["vllm:reweigh_evidence_ms", (model,)].count == 6
    assert found["vllm:reweigh_step_ms", (model,)].count > 0


def test_no_request_gets_the_evidence_of_one_whose_place_it_takes(plain_engine):
    """Eight places are taken three times: in each by the same kind of request, with another picture."""
    from vllm import SamplingParams

    world, prompts, params, expected = plain_engine.reference, [], [], []
    for number in range(24):
        kind, case = (*MIXED, None, "edited")[number % 8], number * 5 % 6
        prompts.append({"prompt": "describe the picture"} if kind is None else world.prompts([case])[0])
        asked = None if kind is None else world.asks(kind)
        params.append(SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, extra_args=asked))
        expected.append(None if kind is None else world.cases[case][kind][:12])
    answers = plain_engine.llm.generate(prompts, params, use_tqdm=False)
    for answer, tokens, asked in zip(answers, expected, params, strict=True):
        assert tokens is None or list(answer.outputs[0].token_ids) == tokens
        assert (told(answer) is None) == (tokens is None or asked.extra_args == world.asks("plain"))
    plain_engine.check(["plain"])  # the step that follows brings word of those that ended
    assert len(plain_engine.worker.reweigh.capture.store.requests) <= 1


def test_a_request_alone_or_in_a_batch_samples_the_same(plain_engine):
    seeds = {"temperature": 0.8, "seed": 7}
    together = plain_engine.answer(["edited"] * 2, **seeds)
    alone = [plain_engine.answer(["edited"], [case], **seeds)[0] for case in range(2)]
    assert [a.outputs[0].token_ids for a in together] == [a.outputs[0].token_ids for a in alone]


def test_a_request_that_asks_has_the_evidence_of_its_tokens(plain_engine):
    """The strengths are those of the edit: what was replaced had won by less than beta times its own."""
    world, table = plain_engine.reference, ReferenceTable.from_pretrained(plain_engine.reference.table)
    count = world.tokens
    case = next(
        number for number, one in enumerate(world.cases) if one["plain"][:count] != one["edited"][:count]
    )
    answer = plain_engine.answer_with({"reweigh_evidence": True}, case)
    tokens = list(answer.outputs[0].token_ids)
    assert tokens == world.cases[case]["edited"][:count]
    shown, text = told(answer), answer.outputs[0].text
    assert (shown["decoder"], shown["layer"], shown["beta"]) == ("reweigh", world.layer, world.beta)
    assert shown["b0"] == table.b0
    assert [one["token"] for one in shown["tokens"]] == tokens
    assert [one["step"] for one in shown["tokens"]] == list(range(len(tokens)))
    assert shown["tokens"][-1]["end"] == len(text)
    for one in shown["tokens"]:
        reference = table.reference(one["token"])
        assert one["b"] == reference
        if reference is not None:
            assert one["s"] == pytest.approx(min(max((reference - one["dmrr"]) / table.b0, 0), 1), abs=1e-5)
    assert "".join(text[one["start"] : one["end"]] for one in shown["tokens"]) == text
    changed = [one for one in shown["tokens"] if one["replaced"]]
    assert shown["changed"] == len(changed) > 0
    plain = world.cases[case]["plain"]
    first = next(step for step, token in enumerate(tokens) if token != plain[step])
    assert changed[0]["step"] == first
    assert changed[0]["replaced"]["token"] == plain[first]
    assert "tokens" not in told(plain_engine.answer_with(None))


def test_evidence_of_tokens_without_text_is_refused_and_harms_no_other_request(plain_engine):
    from vllm import SamplingParams
    from vllm.exceptions import VLLMValidationError

    params = SamplingParams(max_tokens=4, detokenize=False, extra_args={"reweigh_evidence": True})
    with pytest.raises(VLLMValidationError, match="detokenized"):
        plain_engine.llm.generate(plain_engine.reference.prompts([0]), params, use_tqdm=False)
    plain_engine.check(["edited", "plain"], tokens=6)


def test_samples_of_one_request_are_each_edited(plain_engine):
    [answer] = plain_engine.answer(["edited"], n=2, temperature=0.8, seed=7)
    assert len(answer.outputs) == 2
    assert told(answer)["edited"]
    assert not plain_engine.llm.llm_engine.output_processor.request_states


def test_penalties_act_on_edited_logits(plain_engine):
    """As in the transformers engine: the edit sees raw logits, and what comes after sees the edit."""
    answers = plain_engine.answer(["edited"] * 6, repetition_penalty=1.3)
    for answer, case in zip(answers, plain_engine.reference.cases, strict=True):
        assert list(answer.outputs[0].token_ids) == case["penalised"][:TOKENS]


@pytest.mark.parametrize("family", ["llava", "llava_next", "qwen2_5_vl", "internvl"])
def test_families_with_several_images(family):
    reference = Reference(family)
    assert sum(case["plain"] != case["edited"] for case in reference.cases) >= 5
    with running(reference, max_model_len=1024) as engine:
        engine.check(["edited"] * 7)
        engine.check(["half", "plain", "edited", "half", "plain", "half", "edited"])


def test_chunks_that_split_an_image_and_prefix_hits(world):
    """Forty tokens a step split the 64 positions of an image; blocks of 32 let plain requests hit the prefix cache."""
    options = {"block_size": 32, "max_num_batched_tokens": 40, "enable_prefix_caching": True}
    with running(world, **options) as engine:
        engine.check(["edited", "plain", "half", "edited"])
        again = engine.check(["plain", "plain", "edited", "half"])
        assert again[0].num_cached_tokens > 0
        assert again[2].num_cached_tokens == 0  # exact: an edited request computes its prompt


def test_logits_that_form_no_distribution_are_reported_as_an_accelerator_would(world, monkeypatch):
    """The values are not looked at; what became of them arrives with the tokens of the step."""
    from reweigh_vllm.processor import StepEditor

    original, steps = StepEditor.step, []

    def step(self, logits):
        steps.append(len(logits))
        found = original(self, logits)
        sound = torch.ones(len(self.betas), dtype=torch.bool)
        sound[0] = len(steps) != 5
        return found._replace(candidates=found.candidates._replace(sound=sound))

    with running(world) as engine:
        monkeypatch.setattr(StepEditor, "step", step)
        first, second = engine.answer(["edited", "edited"])
        assert "distribution" in told(first)["reason"]
        assert told(second)["edited"]
        assert list(second.outputs[0].token_ids) == world.cases[1]["edited"][: world.tokens]


def test_preempted_requests_keep_their_evidence(world):
    """Four prompts of three blocks each fit; each needs a fourth block at its seventeenth token."""
    tight = {"block_size": 32, "num_gpu_blocks_override": 14, "max_model_len": 160}
    with running(world, **tight, disable_log_stats=False) as engine:
        engine.check(["edited", "edited", "half", "edited", "plain", "half"], tokens=30)
        counted = {metric.name: metric for metric in engine.llm.get_metrics()}
        assert counted["vllm:num_preemptions"].value > 0


def test_async_scheduling(world, monkeypatch):
    from vllm.platforms.cpu import CpuPlatform

    original = CpuPlatform.check_and_update_config.__func__

    def forced(cls, config):
        original(cls, config)
        config.scheduler_config.async_scheduling = True

    monkeypatch.setattr(CpuPlatform, "check_and_update_config", classmethod(forced))
    with running(world) as engine:
        assert engine.llm.llm_engine.vllm_config.scheduler_config.async_scheduling
        engine.check(MIXED)


@pytest.mark.skipif(not V2, reason="vLLM's V1 runner leaves processors out when it speculates; refused")
def test_ngram_speculation(world):
    import interpreted_cpu.masks  # noqa: F401

    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 1}
    with running(world, speculative_config=drafts) as engine:
        engine.check(MIXED)


@pytest.mark.parametrize(
    "eager", [True, pytest.param(False, marks=pytest.mark.skipif(V2, reason="V1 compiles"))]
)
def test_the_tap_of_gemma_3_on_a_decoder_that_has_both(world, monkeypatch, eager):
    """Gemma 3's decoder hands out no auxiliary states, so hooks copy them; Gemma 3 itself is refused on a CPU."""
    monkeypatch.setattr(installed, "tap_for", HookTap)
    with running(world, enforce_eager=eager) as engine:
        assert type(engine.worker.reweigh.capture.tap) is HookTap
        engine.check(MIXED)


def moved_point(calibration, folder, layer):
    """A calibration of two layers whose tuned layer is ``layer``."""
    shutil.copytree(calibration, folder, dirs_exist_ok=True)
    record_point(folder, OperatingPoint(layer, 4.0, "tuned", 1))


def test_a_point_that_moves_within_its_folder_is_another_engine_to_the_compile_cache(world, tmp_path):
    hashes, resolved = [], []
    for layer in (2, 1):
        moved_point(reference_folder("world") / f"observed-{TOKENS}", tmp_path / "table", layer)
        plain = {"additional_config": {"reweigh": {"table": str(tmp_path / "table")}}}
        config = engine_config(world, **plain)
        hashes.append(config.compute_hash())
        resolved.append(config.additional_config["reweigh"]["layer"])
    assert resolved == [2, 1]
    assert hashes[0] != hashes[1]


@pytest.mark.skipif(V2, reason="the interpreter runs kernels one by one; V1 compiles the same decoder")
def test_a_compiled_decoder(world):
    with running(world, enforce_eager=False) as engine:
        engine.check(MIXED)


@pytest.mark.skipif(V2, reason="the interpreter runs kernels one by one; V1 compiles the same decoder")
def test_a_decoder_that_was_compiled_for_another_layer_is_refused(world, monkeypatch):
    """As one from a stale cache would be; vLLM cannot load those of a CPU."""
    original = AuxTap.__init__

    def stale(self, runner, decoder, layers):
        original(self, runner, decoder, [layer + 1 for layer in layers])
        self.layers = tuple(layers)

    monkeypatch.setattr(AuxTap, "__init__", stale)
    found = rf"blocks \[{world.layer + 1}\], but blocks \[{world.layer}\]"
    with pytest.raises(MismatchError, match=found), running(world, enforce_eager=False):
        pass
