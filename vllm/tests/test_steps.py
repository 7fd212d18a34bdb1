"""Batches led to their requests, and edits to their rows, on a runner of plain objects."""

from __future__ import annotations

from types import SimpleNamespace as Plain

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.method.edit import StepEditor
from reweigh.method.lens import Lens
from reweigh_vllm import processor
from reweigh_vllm.capture import Capture
from reweigh_vllm.processor import Processor
from reweigh_vllm.reading import References, Store
from reweigh_vllm.report import attach, outcome
from reweigh_vllm.settings import MARK, SHOWN, Settings

VOCABULARY, WIDTH = 31, 8
LLAVA = Plain(model_type="llava")
PROMPT = 8


def feature(identifier: str = "hash", offset: int = 2, length: int = 4):
    return Plain(identifier=identifier, mm_position=Plain(offset=offset, length=length, is_embed=None))


def new(name: str, beta: float | None = 1.0, *, computed: int = 0, images=None, tokens=None):
    extra = {} if beta is None else {MARK: beta}
    return Plain(
        req_id=name,
        prompt_token_ids=list(range(PROMPT)) if tokens is None else tokens,
        mm_features=[feature(name)] if images is None else images,
        sampling_params=Plain(extra_args=extra),
        num_computed_tokens=computed,
        prompt_embeds=None,
    )


def scheduled(arrivals=(), running=(), counts=None, finished=()):
    cached = Plain(req_ids=[name for name, _ in running], num_computed_tokens=[done for _, done in running])
    return Plain(
        scheduled_new_reqs=list(arrivals),
        scheduled_cached_reqs=cached,
        num_scheduled_tokens=dict(counts or {}),
        finished_req_ids=set(finished),
    )


class Bench:
    """A capture whose runner shows what a test puts into it."""

    def __init__(self, **settings):
        torch.manual_seed(0)
        tokens = torch.arange(0, VOCABULARY, 2)
        table = References(tokens, torch.full((len(tokens),), 0.5), 0.6)
        lens = Lens(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False))
        settings = Settings(**settings)
        if settings.observe:
            store = Store(lens, settings.observe)
        else:
            store = Store(lens, (1,), table, limit=1 << 20)
        self.runner = Plain(execute_model_state=None, input_batch=None)
        tap = Plain(states=lambda state: state.aux_hidden_states)
        self.capture = Capture(settings, LLAVA, store, tap, self.runner)
        self.processor = Processor(self.capture)

    def step(self, message, order, states, slots=None, rows=None):
        state = Plain(aux_hidden_states=dict.fromkeys(range(3), states))
        batch = Plain(req_ids=list(order))
        if slots is not None:
            batch.idx_mapping_np = np.array(slots)
            batch.cu_num_logits_np = np.cumsum([0, *(rows or [1] * len(slots))])
            state.input_batch = batch
        self.runner.input_batch, self.runner.execute_model_state = batch, state
        self.capture.step(message)

    def strengths(self, name):
        return self.capture.store.requests[name].strengths


def stream(count: int = PROMPT, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def logits(rows: int) -> torch.Tensor:
    return torch.randn(rows, VOCABULARY, generator=torch.Generator().manual_seed(9))


def context(slots, expanded=None):
    return Plain(
        idx_mapping_np=np.array(slots),
        expanded_idx_mapping=torch.tensor(expanded if expanded is not None else slots),
    )


def both(bench: Bench):
    """Requests "a" (beta 1) and "b" (off) and "c" (beta 2) in one prefill, in another order than they came."""
    states = torch.cat([stream(seed=1), stream(seed=2), stream(seed=3)])
    message = scheduled([new("a"), new("b", 0.0), new("c", 2.0)], counts=dict.fromkeys("abc", PROMPT))
    bench.step(message, "cba", states)


def test_each_row_is_edited_by_its_own_request():
    bench = Bench()
    both(bench)
    raw = logits(3)
    edited = bench.processor.apply(raw.clone())
    assert torch.equal(edited[1], raw[1])
    for row, name, beta in ((0, "c", 2.0), (2, "a", 1.0)):
        alone = StepEditor(bench.strengths(name)[None], torch.tensor(beta))(raw[row : row + 1])[0]
        assert torch.equal(edited[row], alone)
        assert not torch.equal(alone, raw[row])
    assert bench.processor.seconds > 0


def test_the_editor_is_laid_out_again_when_the_batch_changes():
    bench = Bench()
    both(bench)
    raw = logits(3)
    first = bench.processor.apply(raw.clone())
    kept = bench.processor._editor
    message = scheduled(running=[("a", 8), ("b", 8), ("c", 8)], counts=dict.fromkeys("abc", 1))
    bench.step(message, "cba", stream(3))
    assert torch.equal(bench.processor.apply(raw.clone()), first)
    assert bench.processor._editor is kept
    bench.step(message, "abc", stream(3))
    swapped = bench.processor.apply(raw[[2, 1, 0]].clone())
    assert torch.equal(swapped, first[[2, 1, 0]])
    bench.step(scheduled(running=[("a", 9)], counts={"a": 1}, finished="bc"), "a", stream(1))
    assert torch.equal(bench.processor.apply(raw[2:].clone()), first[2:])
    assert set(bench.capture.store.requests) == {"a"}


def test_slots_serve_drafts_and_parts_of_the_batch():
    """Three rows for a request that drafts two tokens; verification may ask for each request apart."""
    bench, plain = Bench(), Bench()
    both(plain)
    states = torch.cat([stream(seed=1), stream(seed=2), stream(seed=3)])
    message = scheduled([new("a"), new("b", 0.0), new("c", 2.0)], counts=dict.fromkeys("abc", PROMPT))
    bench.step(message, "cba", states, slots=[7, 0, 4], rows=[3, 1, 2])
    raw = logits(6)
    whole = bench.processor.apply(raw.clone(), context([7, 0, 4]))
    for row, name, beta in ((0, "c", 2.0), (1, "c", 2.0), (2, "c", 2.0), (4, "a", 1.0), (5, "a", 1.0)):
        alone = StepEditor(plain.strengths(name)[None], torch.tensor(beta))(raw[row : row + 1])[0]
        assert torch.equal(whole[row], alone)
    assert torch.equal(whole[3], raw[3])
    parts = [
        bench.processor.apply(raw[a:b].clone(), context(slots))
        for a, b, slots in ((0, 3, [7]), (3, 6, [0, 4]))
    ]
    assert torch.equal(torch.cat(parts), whole)
    odd = bench.processor.apply(raw[[0, 5]].clone(), context([7, 4], expanded=[7, 4]))
    assert torch.equal(odd, whole[[0, 5]])


@pytest.mark.parametrize("expanded", [[4], [4, 4]])
def test_a_row_has_its_place_in_the_whole_batch_if_part_of_it_is_asked_for(expanded):
    bench = Bench(observe=(1,))
    arrivals = [new(name, 0.0) for name in "ab"]
    message = scheduled(arrivals, counts={"a": PROMPT, "b": PROMPT})
    bench.step(message, "ab", torch.cat([stream(), stream(seed=2)]), slots=[7, 4])
    entry = bench.capture.store.requests["b"]
    assert bench.capture.rows(len(expanded), context([4], expanded)) == [(entry, 1)] * len(expanded)


def test_rows_that_cannot_be_told_apart_are_an_error():
    bench = Bench()
    both(bench)
    with pytest.raises(RuntimeError, match="4 rows"):
        bench.processor.apply(logits(4))


def test_a_preempted_request_that_comes_again_keeps_its_evidence():
    bench = Bench()
    bench.step(scheduled([new("a")], counts={"a": PROMPT}), "a", stream())
    kept = bench.strengths("a")
    bench.step(scheduled([new("a")], counts={"a": 4}), "a", stream(4, seed=5), slots=[3])
    assert bench.strengths("a") is kept


def test_a_request_whose_prompt_grew_is_measured_anew():
    bench = Bench()
    bench.step(scheduled([new("a")], counts={"a": PROMPT}), "a", stream())
    kept = bench.strengths("a")
    longer = new("a", images=[feature("a"), feature("other", 6, 2)])
    bench.step(scheduled([longer], counts={"a": PROMPT}), "a", stream())
    assert not torch.equal(bench.strengths("a"), kept)


def test_outcomes_are_reported_once_and_only_of_requests_that_asked():
    bench = Bench()
    both(bench)
    assert set(bench.capture.news()) == {"a", "c"}
    assert bench.capture.news() == {}
    late = new("late", computed=6)
    bench.step(scheduled([late], counts={"late": 2}), ["late"], stream(2))
    assert "prefix cache" in bench.capture.news()["late"].reason
    bench.step(scheduled([new("bare", None)], counts={"bare": PROMPT}), ["bare"], stream())
    assert "front end" in bench.capture.news()["bare"].reason


def test_prompts_of_embeddings_and_without_content_have_a_reason():
    bench = Bench()
    unknown = new("x")
    unknown.prompt_token_ids = None
    empty = new("y", images=[feature("y", 2, 0)])
    bench.step(scheduled([unknown, empty], counts={"x": 4, "y": 4}), "xy", stream(8))
    assert {name: entry.reason for name, entry in bench.capture.news().items()} == {
        "x": "its prompt was given as embeddings",
        "y": "no position of its prompt carries image content",
    }


def test_text_requests_cost_nothing():
    bench = Bench()
    bench.step(scheduled([new("t", images=[])], counts={"t": 3}), "t", stream(3))
    raw = logits(1)
    assert bench.processor.apply(raw) is raw
    assert bench.capture.store.requests == {}


def test_finished_requests_leave_even_with_a_step_that_computes_nothing():
    bench = Bench()
    both(bench)
    bench.runner.execute_model_state = None
    bench.capture.step(scheduled(finished="abc"))
    assert bench.capture.store.requests == {}
    assert bench.capture.batch == []


def test_observation_keeps_the_candidates_of_each_output_position():
    bench = Bench(observe=(0, 1))
    bench.step(scheduled([new("a", 0.0)], counts={"a": 5}), "a", stream(5))
    bench.processor.apply(logits(1))  # a partial prompt: what it samples is thrown away
    entry = bench.capture.store.requests["a"]
    assert entry.steps == {}
    bench.step(scheduled(running=[("a", 5)], counts={"a": 3}), "a", stream(3))
    raw = logits(1)
    assert bench.processor.apply(raw) is raw
    bench.step(scheduled(running=[("a", 8)], counts={"a": 1}), "a", stream(1))
    bench.processor.apply(logits(1))
    assert sorted(entry.steps) == [0, 1]
    assert entry.evidence.shape == (2, VOCABULARY)
    bench.runner.execute_model_state = None
    bench.capture.step(scheduled(finished="a"))
    assert "a" in bench.capture.store.requests  # kept until it is taken


def test_logits_that_form_no_distribution_end_the_edits_of_their_request_alone():
    bench = Bench()
    both(bench)
    assert all(entry.reason is None for entry in bench.capture.news().values())
    raw = logits(3)
    expected = bench.processor.apply(raw.clone())
    raw[0] = float("nan")
    edited = bench.processor.apply(raw.clone())
    assert torch.equal(edited[1:], expected[1:])
    assert edited[0].isnan().all()
    told = bench.capture.news()
    assert set(told) == {"c"}
    assert "no distribution" in told["c"].reason
    whole = bench.processor.apply(logits(3))
    assert torch.equal(whole[0], logits(3)[0])  # once unedited, unedited to the end
    assert torch.equal(whole[2], expected[2])


def without_looking(monkeypatch):
    """As on an accelerator: no value of the logits is looked at."""
    original = processor.StepEditor.step

    def step(self, logits):
        sound = logits.isfinite().all(dim=1) if self.rows is None else logits[self.rows].isfinite().all(dim=1)
        found = original(self, logits.nan_to_num())
        return found._replace(candidates=found.candidates._replace(sound=sound))

    monkeypatch.setattr(processor.StepEditor, "step", step)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_accelerator_reports_such_a_request_with_the_tokens_of_that_step(monkeypatch, is_async):
    without_looking(monkeypatch)
    bench = Bench()
    both(bench)
    bench.processor.apply(logits(3))
    assert report(bench, is_async) == {"a": True, "c": True}
    raw = logits(3)
    raw[0] = float("nan")
    bench.processor.apply(raw)
    assert report(bench, is_async) == {"c": False}
    whole = bench.processor.apply(logits(3))
    assert torch.equal(whole[0], logits(3)[0])  # once unedited, unedited to the end
    assert not torch.equal(whole[2], logits(3)[2])
    assert report(bench, is_async) == {"c": False}  # as the worker itself knows now


def report(bench, is_async=False):
    """What a worker's message says after a step, of each request."""
    inner = Plain()
    output = Plain(get_output=lambda: inner) if is_async else inner
    processor = bench.processor
    told = {name: outcome(entry, 1) for name, entry in bench.capture.news().items()}
    attach(output, told, processor.seconds, processor.late(), processor.unsound)
    if is_async:
        output.get_output()
    return {name: told["edited"] for name, told in inner.reweigh_report["requests"].items()}


def test_a_request_that_asks_shows_the_best_token_before_and_after_each_edit():
    bench = Bench()
    states = torch.cat([stream(seed=1), stream(seed=2)])
    arrivals = [new("a"), new("b", 3.0)]
    arrivals[1].sampling_params.extra_args[SHOWN] = True
    bench.step(
        scheduled(arrivals, counts=dict.fromkeys("ab", PROMPT)), "ab", states, slots=[3, 1], rows=[1, 2]
    )
    raw = logits(3)
    edited = bench.processor.apply(raw.clone(), context([3, 1]))
    inner = Plain()
    attach(inner, {}, 0.0, bench.processor.late(), bench.processor.unsound)
    found = inner.reweigh_report["winners"]
    assert found == {"b": [[int(raw[row].argmax()), int(edited[row].argmax())] for row in (1, 2)]}


def test_steps_in_which_nothing_changes_do_no_work_for_each_row(monkeypatch):
    bench = Bench()
    both(bench)
    bench.processor.apply(logits(3))
    for name in ("rows", "tell", "_read", "_note"):
        monkeypatch.setattr(bench.capture, name, None)
    message = scheduled(running=[(one, 8) for one in "abc"], counts=dict.fromkeys("abc", 1))
    batch = bench.capture.batch
    bench.step(message, "cba", stream(3))
    bench.processor.apply(logits(3))
    assert bench.capture.batch is batch


@pytest.mark.parametrize("order", ["ab", "ba"])
@pytest.mark.parametrize("slots", [None, [3, 1]])
def test_a_prompt_that_reads_the_blocks_of_another_in_the_same_step_has_its_evidence(order, slots):
    """As two equal prompts do that arrive together, or the samples of one request."""
    bench, alone = Bench(prefix_cache="recall"), Bench()
    alone.step(scheduled([new("a", 2.0)], counts={"a": PROMPT}), "a", stream())
    same = [feature("image")]
    arrivals = [new("a", 0.0, images=same), new("b", 2.0, images=same, computed=5)]
    rows = {"a": stream(), "b": stream()[5:]}
    message = scheduled(arrivals, counts={"a": PROMPT, "b": 3})
    bench.step(message, order, torch.cat([rows[name] for name in order]), slots=slots)
    assert torch.equal(bench.strengths("b"), alone.strengths("a"))
    assert set(bench.capture.news()) == {"b"}


def test_a_conversation_that_gains_an_image_resumes_from_the_first():
    bench, alone = Bench(prefix_cache="recall"), Bench()
    images = [feature("one", 1, 2), feature("two", 5, 2)]
    bench.step(scheduled([new("a", images=images[:1])], counts={"a": PROMPT}), "a", stream())
    bench.step(scheduled([new("b", images=images, computed=4)], counts={"b": 4}), "b", stream()[4:])
    alone.step(scheduled([new("b", images=images)], counts={"b": PROMPT}), "b", stream())
    assert torch.equal(bench.strengths("b"), alone.strengths("b"))


def test_equal_pictures_of_a_calibration_are_each_observed():
    bench = Bench(observe=(0, 1))
    same = [feature("image")]
    arrivals = [new(name, 0.0, images=same) for name in "ab"]
    bench.step(scheduled(arrivals, counts=dict.fromkeys("ab", PROMPT)), "ab", torch.cat([stream(), stream()]))
    first, second = (bench.capture.store.requests[name].evidence for name in "ab")
    assert torch.equal(first, second)


def test_a_prompt_of_embeddings_without_images_has_a_reason_too():
    """Nobody knows whether they are those of an image."""
    bench = Bench()
    given, silent = new("x", images=[]), new("y", None, images=[])
    given.prompt_token_ids, given.prompt_embeds = None, torch.zeros(4, WIDTH)
    bench.step(scheduled([given, silent], counts={"x": 4, "y": 4}), "xy", stream(8))
    assert {name: entry.reason for name, entry in bench.capture.news().items()} == {
        "x": "its prompt was given as embeddings"
    }


def test_states_that_vllm_cuts_end_every_request_they_belong_to_with_an_error():
    """As transformers 5.23 cuts those of some blocks: whose states are left is unknown, so none is read."""
    bench = Bench()
    states = torch.cat([stream(seed=1), stream(seed=2)])[:-1]
    bench.step(scheduled([new("a"), new("b")], counts=dict.fromkeys("ab", PROMPT)), "ab", states)
    told = {name: outcome(entry, 1) for name, entry in bench.capture.news().items()}
    assert set(told) == set("ab")
    for name in "ab":
        assert told[name]["failed"]
        assert "15 of 16 positions" in told[name]["reason"]
        assert bench.strengths(name) is None
    assert not len(bench.capture.store.memory)


def test_an_image_whose_states_never_come_ends_its_request_with_an_error():
    """Its places are known and none of its states was in the prefix cache, so it may not pass for unedited."""
    bench = Bench()
    bench.step(scheduled([new("a", images=[feature("a", 5, 9)])], counts={"a": PROMPT}), "a", stream())
    entry = bench.capture.news()["a"]
    assert entry.is_failed
    assert "the states of 6 of its 9 visual positions never came" in entry.reason


def test_a_request_that_is_only_shown_is_not_edited_and_has_its_evidence():
    bench = Bench()
    message = scheduled([new("a", 0.0)], counts={"a": PROMPT})
    message.scheduled_new_reqs[0].sampling_params.extra_args[SHOWN] = True
    bench.step(message, "a", stream())
    raw = logits(1)
    assert torch.equal(bench.processor.apply(raw.clone()), raw)
    [late] = bench.processor.late()
    assert late.winners.tolist() == [[int(raw.argmax())] * 2]
    told = outcome(bench.capture.news()["a"], 1)
    assert (told["edited"], told["evidence"], "reason" in told) == (False, "measured", False)
