"""Batches led to their requests, and edits to their rows, on a runner of plain objects."""

from __future__ import annotations

from types import SimpleNamespace as Plain

import numpy as np
import pytest
import torch
from torch import nn

from reweigh.engines.vllm import processor
from reweigh.engines.vllm.capture import Capture
from reweigh.engines.vllm.config import MARK, READ_FOR, SHOWN, Settings
from reweigh.engines.vllm.processor import Processor
from reweigh.engines.vllm.report import attach
from reweigh.engines.vllm.store import Store
from reweigh.method.edit import StepEditor
from reweigh.method.lens import Lens
from reweigh.method.sums import ReadoutSums
from reweigh.runtime.reader import Reader, Registered

VOCABULARY, WIDTH = 31, 8
LLAVA = Plain(model_type="llava")
PROMPT = 8


def feature(identifier: str = "hash", offset: int = 2, length: int = 4):
    return Plain(identifier=identifier, mm_position=Plain(offset=offset, length=length, is_embed=None))


def new(name: str, beta: float | None = 1.0, *, computed: int = 0, images=None, tokens=None, table="t"):
    extra = {} if beta is None else {MARK: beta, READ_FOR: table}
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
        table = Registered(tokens, torch.full((len(tokens),), 0.5), 0.6)
        lens = Lens(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False))
        settings = Settings(sources={}, **settings)
        observing = bool(settings.observe)
        options = {} if observing else {"tokens": tokens, "registered": table}
        self.reader = Reader(lens, settings.observe or (1,), **options)
        store = Store("cpu", limit=0 if observing else 1 << 20)
        self.runner = Plain(execute_model_state=None, input_batch=None)
        tap = Plain(states=lambda state: state.aux_hidden_states)
        readers = {"": self.reader} if observing else {"t": self.reader}
        self.capture = Capture(settings, LLAVA, store, tap, self.runner, readers)
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


def test_states_are_taken_from_the_request_s_own_rows():
    bench, alone = Bench(), Bench()
    both(bench)
    alone.step(scheduled([new("a")], counts={"a": PROMPT}), "a", stream(seed=3))
    assert torch.equal(bench.strengths("a"), alone.strengths("a"))


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


def test_requests_that_follow_each_other_in_one_row_are_never_mixed_up():
    """The strengths of a later request may lie at the address of an earlier one's."""
    bench, raw = Bench(), logits(1)
    bench.step(scheduled([new("a")], counts={"a": PROMPT}), "a", stream(seed=1))
    bench.processor.apply(raw.clone())
    address = bench.strengths("a")
    bench.step(scheduled([new("b")], counts={"b": PROMPT}, finished="a"), "b", stream(seed=2))
    bench.capture.store.requests["b"].strengths = address.copy_(bench.strengths("b"))
    edited = bench.processor.apply(raw.clone())
    assert torch.equal(edited, StepEditor(address[None], torch.tensor(1.0))(raw))


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
    arrivals = [new(name, 0.0, table="") for name in "ab"]
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


def test_recall_mode_measures_requests_that_are_switched_off():
    bench = Bench(prefix_cache="recall")
    bench.step(scheduled([new("off", 0.0)], counts={"off": PROMPT}), ["off"], stream())
    again = new("on", 1.0, computed=7, images=[feature("off")])
    bench.step(scheduled([again], counts={"on": 1}), ["on"], stream(1))
    assert bench.capture.news()["on"].source == "recalled"
    assert "off" not in bench.capture.news()


def test_finished_requests_leave_even_with_a_step_that_computes_nothing():
    bench = Bench()
    both(bench)
    bench.runner.execute_model_state = None
    bench.capture.step(scheduled(finished="abc"))
    assert bench.capture.store.requests == {}
    assert bench.capture.batch == []


def test_only_requests_that_are_edited_need_the_sampler_s_copy_of_the_logits():
    bench = Bench()
    assert bench.processor.add_request(0, Plain(extra_args={MARK: 1.0}))
    assert not bench.processor.add_request(0, Plain(extra_args={MARK: 0.0}))
    assert not bench.processor.add_request(0, Plain(extra_args=None))
    assert not bench.processor.is_argmax_invariant()


def test_observation_keeps_the_candidates_of_each_output_position():
    bench = Bench(observe=(0, 1))
    bench.step(scheduled([new("a", 0.0, table="")], counts={"a": 5}), "a", stream(5))
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


def test_drafts_without_a_distribution_end_the_edits_of_their_request_alone():
    """Each drafted token has a row; after the first bad one the others of the request are left as they are."""
    bench = Bench()
    message = scheduled([new("a", 2.0), new("b")], counts=dict.fromkeys("ab", PROMPT))
    bench.step(message, "ab", torch.cat([stream(), stream(seed=2)]), slots=[3, 1], rows=[3, 2])
    raw = logits(5)
    expected = bench.processor.apply(raw.clone(), context([3, 1]))
    raw[1:3] = float("nan")
    edited = bench.processor.apply(raw.clone(), context([3, 1]))
    assert torch.equal(edited[[0, 3, 4]], expected[[0, 3, 4]])
    assert edited[1:3].isnan().all()
    reasons = {name: entry.reason for name, entry in bench.capture.news().items()}
    assert "no distribution" in reasons["a"]
    assert reasons["b"] is None


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
    attach(output, bench.capture.news(), processor.seconds, processor.late(), processor.unsound)
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
    attach(inner, bench.capture.news(), 0.0, bench.processor.late(), bench.processor.unsound)
    found = inner.reweigh_report["winners"]
    assert found == {"b": [[int(raw[row].argmax()), int(edited[row].argmax())] for row in (1, 2)]}
    told = inner.reweigh_report["requests"]
    assert "dmrr" not in told["a"]
    assert len(told["b"]["dmrr"]) == len(bench.reader.tokens)


def test_a_request_shows_its_tokens_beside_one_whose_logits_form_no_distribution():
    """A step without its best tokens would shift those of all later steps."""
    bench = Bench()
    arrivals = [new("a"), new("b", 3.0)]
    arrivals[1].sampling_params.extra_args[SHOWN] = True
    message = scheduled(arrivals, counts=dict.fromkeys("ab", PROMPT))
    bench.step(message, "ab", torch.cat([stream(seed=1), stream(seed=2)]), slots=[3, 1], rows=[1, 2])
    raw = logits(3)
    raw[0] = float("nan")
    edited = bench.processor.apply(raw.clone(), context([3, 1]))
    inner = Plain()
    attach(inner, bench.capture.news(), 0.0, bench.processor.late(), bench.processor.unsound)
    winners = [[int(raw[row].argmax()), int(edited[row].argmax())] for row in (1, 2)]
    assert inner.reweigh_report["winners"] == {"b": winners}


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


class Overflowing(nn.Linear):
    """A head whose logit of one token is infinite, as a narrow type makes it."""

    def forward(self, states):
        found = super().forward(states).clone()
        found[:, 3] = float("inf")
        return found


def test_evidence_that_is_not_finite_is_a_reason_when_it_is_recalled_too():
    bench, same = Bench(), [feature("image")]
    bench.reader.empty = ReadoutSums(VOCABULARY, bench.reader.tokens, readouts=["prob"])
    bench.reader.readouts = bench.reader.empty.readouts
    bench.reader.lens = Lens(nn.LayerNorm(WIDTH), Overflowing(WIDTH, VOCABULARY, bias=False))
    for name in "ab":
        bench.step(scheduled([new(name, images=same)], counts={name: PROMPT}), name, stream())
        assert "not finite" in bench.capture.news()[name].reason


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
    arrivals = [new(name, 0.0, images=same, table="") for name in "ab"]
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


def two_tables():
    """A second table of other tokens, read at another layer."""
    bench = Bench(prefix_cache="recall")
    tokens = torch.arange(1, VOCABULARY, 3)
    table = Registered(tokens, torch.full((len(tokens),), 0.4), 0.5)
    other = Reader(bench.reader.lens, (2,), tokens=tokens, registered=table)
    bench.capture.readers = {"t": bench.reader, "u": other}
    return bench


def test_each_request_is_read_for_its_own_table():
    """Equal prompts in one step and later: nothing of one table's evidence is taken for the other's."""
    bench, same = two_tables(), [feature("image")]
    arrivals = [new("a", images=same), new("b", images=same, table="u")]
    bench.step(scheduled(arrivals, counts=dict.fromkeys("ab", PROMPT)), "ab", torch.cat([stream(), stream()]))
    told = bench.capture.news()
    assert [told[name].source for name in "ab"] == ["measured", "measured"]
    assert [told[name].reader.layers for name in "ab"] == [(1,), (2,)]
    assert set(bench.strengths("a").nonzero().flatten().tolist()) <= set(range(0, VOCABULARY, 2))
    assert set(bench.strengths("b").nonzero().flatten().tolist()) <= set(range(1, VOCABULARY, 3))
    for name, table in (("c", "t"), ("d", "u")):
        bench.step(
            scheduled([new(name, images=same, table=table, computed=7)], counts={name: 1}), name, stream(1)
        )
        assert bench.capture.news()[name].source == "recalled"
    assert torch.equal(bench.strengths("c"), bench.strengths("a"))
    assert torch.equal(bench.strengths("d"), bench.strengths("b"))


def test_a_prefix_that_another_table_s_request_computed_brings_no_evidence():
    bench, same = two_tables(), [feature("image")]
    bench.step(scheduled([new("a", images=same)], counts={"a": PROMPT}), "a", stream())
    bench.step(scheduled([new("b", images=same, table="u", computed=7)], counts={"b": 1}), "b", stream(1))
    assert "prefix cache" in bench.capture.news()["b"].reason


def test_a_running_request_keeps_the_table_it_began_with_and_a_late_one_says_that_its_table_is_gone():
    bench = Bench()
    bench.step(scheduled([new("a")], counts={"a": 4}), "a", stream()[:4])
    bench.capture.readers = {}
    message = scheduled([new("late")], running=[("a", 4)], counts={"a": 4, "late": PROMPT})
    bench.step(message, ["a", "late"], torch.cat([stream()[4:], stream()]))
    alone = Bench()
    alone.step(scheduled([new("a")], counts={"a": PROMPT}), "a", stream())
    assert torch.equal(bench.strengths("a"), alone.strengths("a"))
    assert "replaced" in bench.capture.news()["late"].reason
