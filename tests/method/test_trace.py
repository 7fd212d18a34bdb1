"""The trace: every column of the mechanism table, as the decoder had it, and consistent with itself."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import reweigh
import twin
from checkpoints import VOCABULARY
from reweigh.errors import InputError
from reweigh.files.artifacts import to_json
from reweigh.method.edit import Candidates
from reweigh.method.trace import Recorded, Trace

BETA = 4.0
STEPS = 6


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def traced(llava):
    """A traced generation with its inputs and table."""
    table = twin.table(VOCABULARY)
    inputs = llava.inputs([1])
    attached = reweigh.attach(llava.model, llava.processor, table=table, beta=BETA)
    with torch.no_grad(), attached.using(trace=True) as request:
        output = llava.model.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    return request.trace, output[0, inputs["input_ids"].shape[1] :].tolist(), table, inputs


def test_every_column_equals_its_twin(llava, traced):
    trace, tokens, table, inputs = traced
    dmrr = twin.evidence(llava.model, inputs, table.layer)[0]
    strengths = twin.strengths(table, dmrr, VOCABULARY)
    assert len(trace) == len(tokens)
    for step, token in zip(trace.steps(), tokens, strict=True):
        with torch.no_grad():
            raw = llava.model(**inputs, use_cache=False).logits[0, -1].float().numpy()
        assert [row.token for row in step.candidates] == twin.candidates(raw)
        assert step.winner_before == int(raw.argmax())
        assert step.winner_after == token
        assert step.changed == (step.winner_before != token)
        for row in step.candidates:
            assert row.logit == pytest.approx(raw[row.token], abs=1e-4)
            reference = table.reference(row.token)
            assert row.reference == (pytest.approx(reference) if reference is not None else None)
            if reference is None:
                assert (row.evidence, row.deficit, row.strength, row.shift) == (None, None, None, 0.0)
            else:
                assert row.evidence == pytest.approx(dmrr[row.token], rel=1e-5)
                assert row.deficit == pytest.approx(max(reference - dmrr[row.token], 0), abs=1e-7)
                assert row.strength == pytest.approx(strengths[row.token], abs=1e-5)
                assert row.shift == pytest.approx(BETA * strengths[row.token], abs=1e-4)
            assert row.edited == pytest.approx(row.logit - row.shift, abs=1e-5)
            assert row.text == llava.processor.tokenizer.decode([row.token])
        inputs = twin.extended(inputs, token)
    assert any(step.changed for step in trace.steps())


def test_it_exports_as_plain_json(traced):
    trace = traced[0]
    page = json.loads(to_json(trace.to_json()))
    assert (page["b0"], page["beta"], page["layer"]) == (0.017, BETA, 2)
    assert [step["step"] for step in page["steps"]] == list(range(STEPS))
    names = {"token", "text", "z", "dmrr", "b", "deficit", "s", "shift", "z_after"}
    assert all(set(row) == names for step in page["steps"] for row in step["candidates"])
    assert all(len(step["candidates"]) >= 2 for step in page["steps"])


def test_tracing_ends_with_its_request(llava, traced):
    attached = reweigh.attach(llava.model, llava.processor, table=traced[2], beta=BETA)
    with pytest.raises(RuntimeError, match="boom"), attached.using(trace=True) as request:
        raise RuntimeError("boom")
    attached.generate(**traced[3], do_sample=False, max_new_tokens=2)
    assert len(request.trace) == 0


def test_a_request_without_a_trace_says_how_to_get_one(llava, traced):
    attached = reweigh.attach(llava.model, llava.processor, table=traced[2], beta=BETA)
    with attached.using() as request, pytest.raises(InputError, match="trace"):
        request.trace  # noqa: B018


def test_tracing_changes_nothing(llava, traced):
    _, tokens, table, inputs = traced
    attached = reweigh.attach(llava.model, llava.processor, table=table, beta=BETA)
    output = attached.generate(**inputs, do_sample=False, max_new_tokens=STEPS)
    assert output[0, inputs["input_ids"].shape[1] :].tolist() == tokens


def test_a_row_without_image_has_no_evidence(llava):
    inputs = llava.inputs([1, None], ["Please describe this image in detail.", "What is a clock?"])
    attached = reweigh.attach(llava.model, llava.processor, table=twin.table(VOCABULARY), beta=BETA)
    with torch.no_grad(), attached.using(trace=True) as request:
        llava.model.generate(**inputs, do_sample=False, max_new_tokens=3)
    for seen, unseen in zip(request.trace.steps(0), request.trace.steps(1), strict=True):
        assert any(row.evidence is not None for row in seen.candidates)
        assert unseen.candidates == ()  # nothing was done to it
        assert not unseen.changed
    reversed_batch = llava.inputs([None, 1], ["What is a clock?", "Please describe this image in detail."])
    with torch.no_grad(), attached.using(trace=True) as other:
        llava.model.generate(**reversed_batch, do_sample=False, max_new_tokens=3)
    for mine, theirs in zip(
        other.trace.steps(1), request.trace.steps(0), strict=True
    ):  # another place may round otherwise
        assert [row.token for row in mine.candidates] == [row.token for row in theirs.candidates]
        assert [row.edited for row in mine.candidates] == pytest.approx(
            [row.edited for row in theirs.candidates], abs=1e-3
        )
    assert [step.candidates for step in other.trace.steps(0)] == [()] * 3


@pytest.mark.parametrize("beams", [1, 3])
def test_a_step_is_kept_as_small_tensors(llava, beams):
    attached = reweigh.attach(llava.model, llava.processor, table=twin.table(VOCABULARY), beta=BETA)
    with torch.no_grad(), attached.using(trace=True) as request:
        llava.model.generate(**llava.inputs(), do_sample=False, num_beams=beams, max_new_tokens=3)
    for recorded in request.trace._recorded:
        kept = [recorded.evidence, recorded.strengths, recorded.shifts, recorded.candidates.ids]
        assert max(one.untyped_storage().nbytes() for one in kept) <= 8 * beams * 51


def test_a_hand_made_step():
    chosen = Candidates(
        torch.tensor([[2, 0, 1]]),
        torch.tensor([[True, True, False]]),
        torch.tensor([[3.0, 2.5, 1.0]]),
        torch.tensor([True]),
    )
    references = torch.tensor([float("nan"), 0.5, 0.25])
    evidence, strengths = torch.tensor([[0.125, 0.0, 0.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    trace = Trace(scale=0.125, beta=2.0, layer=1, references=references, decode=lambda token: "abc"[token])
    shift = torch.tensor([[2.0, 0.0, 0.0]])
    trace.record(Recorded(chosen, shift, evidence, strengths, torch.tensor([2]), torch.tensor([0])))
    step = trace.step(0)
    assert [row.text for row in step.candidates] == ["c", "a"]
    first, second = (row.to_json() for row in step.candidates)
    assert first == {
        "token": 2, "text": "c", "z": 3.0, "dmrr": 0.125, "b": 0.25, "deficit": 0.125, "s": 1.0, "shift": 2.0,
        "z_after": 1.0,
    }  # fmt: skip
    assert (second["b"], second["z_after"]) == (None, 2.5)
    assert step.changed
    assert np.isfinite([row.edited for row in step.candidates]).all()
    with pytest.raises(IndexError):
        trace.step(1)
