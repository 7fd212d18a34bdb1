"""``session.generate`` gives what ``model.generate`` gives inside ``with session:``, in every mode."""

from __future__ import annotations

import pytest
import torch

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY

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


def generate(caller, inputs, **options):
    torch.manual_seed(0)
    with torch.no_grad():
        return caller.generate(**inputs, **{"do_sample": False, "max_new_tokens": 6, **options})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("mode", MODES)
def test_tokens_are_those_of_the_block(case, mode):
    inputs = case.inputs([1, 2], ["Please describe this image in detail.", "What is it?"])
    session = attach(case)
    with session:
        within = generate(case.model, inputs, **MODES[mode])
    called = generate(session, inputs, **MODES[mode])
    assert called.tolist() == within.tolist()
    if mode == "greedy" and case.family != "internvl":  # its random head is too sure of itself
        assert generate(case.model, inputs).tolist() != called.tolist()
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
    generate(session, case.inputs(), num_beams=3)
    assert read == [1]
