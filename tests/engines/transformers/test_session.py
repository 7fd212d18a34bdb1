"""A session as ``custom_generate`` gives what ``with session:`` gives, in every mode that this serves."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import TextStreamer

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.errors import InputError, UnsupportedError

DIRECT = [family for family in FAMILIES if family != "instructblip"]
MODES = {
    "greedy": {},
    "sampling": {"do_sample": True, "top_k": 20},
    "beams": {"num_beams": 3},
    "beams, several answers": {"num_beams": 4, "num_return_sequences": 2},
    "samples": {"do_sample": True, "num_return_sequences": 3},
    "penalty": {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    "no cache": {"use_cache": False},
}


@pytest.fixture
def case(checkpoint, family):
    return twin.case(checkpoint(family))


def attach(case, **options):
    return reweigh.attach(case.model, table=twin.table(VOCABULARY), beta=8.0, **options)


def generate(case, inputs, **options):
    torch.manual_seed(0)
    with torch.no_grad():
        return case.model.generate(**inputs, **{"do_sample": False, "max_new_tokens": 6, **options})


@pytest.mark.parametrize("family", DIRECT)
@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_those_of_the_block(case, mode):
    inputs = case.inputs([1, 2], ["Please describe this image in detail.", "What is it?"])
    session = attach(case)
    with session:
        within = generate(case, inputs, **MODES[mode])
    called = generate(case, inputs, **MODES[mode], custom_generate=session)
    assert called.tolist() == within.tolist()
    if mode == "greedy" and case.family != "internvl":  # its random head is too sure of itself
        assert generate(case, inputs).tolist() != called.tolist()
    assert "generate" not in vars(case.model)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_is_measured_once_however_many_beams(case, monkeypatch):
    session = attach(case)
    read = []
    gather = type(session.decoder.reader).gather
    monkeypatch.setattr(
        type(session.decoder.reader),
        "gather",
        lambda self, forward, given: read.append(len(forward.new())) or gather(self, forward, given),
    )
    generate(case, case.inputs(), num_beams=3, custom_generate=session)
    assert read == [1]


@pytest.mark.parametrize("family", ["llava"])
def test_streamer_and_assistant_reach_the_loop(case, capsys):
    session, inputs = attach(case), case.inputs()
    alone = generate(case, inputs, custom_generate=session)
    streamer = TextStreamer(case.processor.tokenizer, skip_prompt=True)
    streamed = generate(case, inputs, streamer=streamer, custom_generate=session)
    assert streamed.tolist() == alone.tolist()
    prompt = inputs["input_ids"].shape[1]
    assert capsys.readouterr().out.strip() == case.processor.tokenizer.decode(alone[0, prompt:]).strip()

    drafts = []
    assistant = copy.deepcopy(case.model)
    assistant.register_forward_pre_hook(lambda *_: drafts.append(1))
    helped = generate(case, inputs, assistant_model=assistant, custom_generate=session)
    assert helped.tolist() == alone.tolist()
    assert drafts


@pytest.mark.parametrize("family", ["llava"])
def test_settings_of_an_outer_request_hold(case):
    session, inputs = attach(case), case.inputs([1, 2], ["What is it?"] * 2)
    base = generate(case, inputs)
    with session.request(beta=[0.0, 0.0]):
        assert generate(case, inputs, custom_generate=session).tolist() == base.tolist()
    with session.request(beta=[0.0, 8.0]):
        mixed = generate(case, inputs, num_beams=2, custom_generate=session)
    plain = generate(case, inputs, num_beams=2)
    assert mixed[0].tolist() == plain[0].tolist()
    assert mixed[1].tolist() != plain[1].tolist()
    with pytest.raises(UnsupportedError, match="another decoder"), attach(case):
        generate(case, inputs, custom_generate=session)


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("name", ["vcd", "opera", "dola"])
def test_rivals_too(case, name):
    session, inputs = reweigh.decoder(name, case.model, case.processor), case.inputs()
    with session:
        within = generate(case, inputs, **session.decoder.generation)
    called = generate(case, inputs, **session.decoder.generation, custom_generate=session)
    assert called.tolist() == within.tolist()
    if session.decoder.generation:
        with pytest.raises(InputError, match=next(iter(session.decoder.generation))):
            generate(case, inputs, custom_generate=session)


@pytest.mark.parametrize("family", ["llava"])
def test_what_cannot_be_served_is_refused(case, checkpoint):
    session, inputs = attach(case), case.inputs()
    with pytest.raises(InputError, match="custom_generate=session"):
        session(case.model, inputs["input_ids"])
    with pytest.raises(UnsupportedError, match="contrastive"):
        generate(case, inputs, penalty_alpha=0.6, top_k=4, custom_generate=session)
    other = twin.case(checkpoint("llava_next"))
    with pytest.raises(InputError, match="another model"):
        generate(other, other.inputs(), custom_generate=session)
    wrapped = twin.case(checkpoint("instructblip"))
    with pytest.raises(UnsupportedError, match="with session"):
        generate(wrapped, wrapped.inputs(), custom_generate=attach(wrapped))
    assert not case.model._forward_hooks
