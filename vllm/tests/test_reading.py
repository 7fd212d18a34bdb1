"""Evidence read piece by piece must be the evidence of the whole, and what was not computed must never be made up."""

from __future__ import annotations

import itertools
from types import SimpleNamespace as Plain

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from reweigh.method.lens import Lens
from reweigh_vllm import installed
from reweigh_vllm.reading import Entry, References, Store

VOCABULARY, WIDTH, PROMPT = 23, 8, 20
TOKENS = torch.tensor([2, 5, 11, 19])


class Positional(Store):
    """A store that takes the states of its layers in their order."""

    def feed(self, entry, start, states):
        super().feed(entry, start, dict(zip(self.layers, states, strict=True)))


def make_store(
    *, limit: int = 1 << 20, registered: bool = True, layers: tuple[int, ...] = (1,)
) -> Positional:
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    table = References(TOKENS, torch.tensor([0.5, 0.9, 0.3, 0.7]), 0.25) if registered else None
    return Positional(Lens(nn.LayerNorm(WIDTH), head), layers, table, limit=limit)


def states(seed: int = 1) -> torch.Tensor:
    return torch.randn(PROMPT, WIDTH, generator=torch.Generator().manual_seed(seed))


def entry(positions=(3, 4, 5, 9, 10), beta: float = 1.0, key: str = "k") -> Entry:
    return Entry(
        name="r", keys=(key,), positions=list(positions), beta=beta, prompt=PROMPT, bounds=[len(positions)]
    )


def expected(store: Store, positions) -> torch.Tensor:
    """By hand from the definition: mean of 1/rank over the positions, then clip((b - x)/b0, 0, 1)."""
    logits = store.lens.read(states()[list(positions)])
    ranks = 1 + (logits[:, None, :] > logits[:, :, None]).sum(-1)
    dmrr = (1.0 / ranks).mean(0)
    strengths = torch.zeros(VOCABULARY)
    table = store.references
    strengths[table.tokens] = ((table.values - dmrr[table.tokens]) / table.scale).clamp(0, 1)
    return strengths


def test_a_whole_prompt_gives_the_strengths_of_the_definition():
    store, one = make_store(), entry()
    store.feed(one, 0, [states()])
    assert one.source == "measured"
    assert torch.allclose(one.strengths, expected(store, one.positions), atol=1e-6)
    assert one.strengths.any()
    assert one.seconds > 0


@settings(max_examples=40)
@given(cuts=st.sets(st.integers(1, PROMPT - 1)), again=st.integers(0, PROMPT))
def test_chunks_and_recomputation_change_nothing(cuts, again):
    """Any chunking of the prefill, and a preemption that starts it anew at any point, gives the same bits."""
    whole_store, whole = make_store(), entry()
    whole_store.feed(whole, 0, [states()])
    store, one = make_store(), entry()
    bounds = [0, *sorted(cuts), PROMPT]
    for start, stop in itertools.pairwise(bounds):
        if stop > again:
            break
        store.feed(one, start, [states()[start:stop]])
    for start, stop in itertools.pairwise(bounds):
        store.feed(one, start, [states()[start:stop]])
    assert torch.equal(one.strengths, whole.strengths)


def test_evidence_is_undecided_until_the_last_position():
    store, one = make_store(), entry()
    store.feed(one, 0, [states()[:10]])
    assert not one.is_decided
    assert not one.needs_logits
    store.feed(one, 10, [states()[10:11]])
    assert one.needs_logits


@pytest.mark.parametrize("start", [4, 6, 11, 19])
def test_a_prefix_that_was_cached_is_a_reason_not_a_guess(start):
    store, one = make_store(), entry()
    store.feed(one, start, [states()[start:]])
    assert "prefix cache" in one.reason
    assert one.strengths is None
    store.feed(one, 0, [states()])
    assert one.strengths is None  # once reported, an outcome stays


def test_a_prefix_that_ends_before_the_image_does_no_harm():
    store, one = make_store(), entry()
    store.feed(one, 3, [states()[3:]])
    assert one.needs_logits


def test_an_equal_prompt_is_recalled_with_its_own_beta():
    store, one = make_store(), entry(beta=0.0)
    store.feed(one, 0, [states()])
    assert one.strengths is None  # measured for others, not edited
    later = entry(beta=2.0)
    assert store.recall_into(later)
    assert later.source == "recalled"
    assert torch.allclose(later.strengths, expected(store, one.positions), atol=1e-6)
    assert not store.recall_into(entry(key="other"))


def test_observation_keeps_all_tokens_of_all_layers():
    store, one = make_store(registered=False, layers=(0, 2), limit=0), entry()
    store.feed(one, 0, [states(1), states(2)])
    assert one.evidence.shape == (2, VOCABULARY)
    for row, seed in enumerate((1, 2)):
        whole = store.sum(states(seed)[list(one.positions)]).evidence()
        assert torch.equal(one.evidence[row], whole)
    assert one.strengths is None


def two_images(beta: float = 1.0) -> Entry:
    """The prompt of ``entry`` with an image more."""
    positions = [3, 4, 5, 9, 10, 14, 15]
    return Entry(name="r", keys=("k", "l"), positions=positions, beta=beta, prompt=PROMPT, bounds=[5, 7])


def test_a_prompt_that_gained_an_image_resumes_from_memory():
    """The first image is in the prefix cache; its states are not computed again, and need not be."""
    store, one, more = make_store(), entry(), two_images()
    store.feed(one, 0, [states()])
    store.resume(more)
    store.feed(more, 12, [states()[12:]])
    assert torch.allclose(more.strengths, expected(store, more.positions), atol=1e-6)
    whole_store, whole = make_store(), two_images()
    whole_store.feed(whole, 0, [states()])
    assert torch.equal(more.strengths, whole.strengths)
    again = two_images()
    assert whole_store.recall_into(again)
    assert torch.equal(again.strengths, whole.strengths)
    inside = two_images()
    store = make_store()
    store.feed(entry(), 0, [states()])
    store.resume(inside)
    store.feed(inside, 15, [states()[15:]])  # the cached prefix ends inside the second image
    assert "not in memory" in inside.reason


@settings(max_examples=40)
@given(cut=st.integers(1, PROMPT), start=st.integers(0, PROMPT - 1), limit=st.sampled_from([0, 1 << 20]))
def test_a_prompt_joins_one_that_is_being_read(cut, start, limit):
    """A second request for the same prompt may begin wherever the first has come to."""
    store, one, two = make_store(limit=limit), two_images(), two_images()
    store.requests = {"one": one, "two": two}
    store.feed(one, 0, [states()[:cut]])
    store.feed(two, start, [states()[start:]])
    if start <= cut:
        assert torch.allclose(two.strengths, expected(store, two.positions), atol=1e-6)
    elif two.strengths is None:
        assert "prefix cache" in two.reason
    store.feed(one, cut, [states()[cut:]])
    assert torch.allclose(one.strengths, expected(store, one.positions), atol=1e-6)


def test_observations_that_were_handed_over_cannot_be_joined():
    store, one, two = make_store(registered=False, limit=0), entry(), entry()
    store.requests = {"one": one, "two": two}
    store.feed(one, 0, [states()])
    store.feed(two, 6, [states()[6:]])
    assert one.evidence is not None
    assert "not computed" in two.reason


def test_logits_that_cannot_be_ranked_are_a_reason():
    store, one = make_store(), entry()
    broken = states()
    broken[4] = float("nan")
    store.feed(one, 0, [broken])
    assert "NaN" in one.reason
    assert one.strengths is None
    store.feed(entry(), 0, [states()])


class Counting(nn.Linear):
    """A head that keeps how many positions it was given at once."""

    seen: list[int]

    def forward(self, states):
        self.seen.append(len(states))
        return super().forward(states)


def counting_store(chunk: int) -> tuple[Positional, Counting]:
    head = Counting(WIDTH, VOCABULARY, bias=False)
    head.seen = []
    table = References(TOKENS, torch.full((len(TOKENS),), 0.5), 0.25)
    return Positional(Lens(nn.LayerNorm(WIDTH), head, chunk=chunk), (1,), table), head


def test_the_head_runs_once_for_each_chunk_of_positions():
    store, head = counting_store(chunk=2)
    store.feed(entry(), 0, [states()])
    assert head.seen == [2, 2, 1]


def test_the_memory_profile_sees_a_full_chunk_and_the_largest_batch(monkeypatch):
    store, head = counting_store(chunk=7)
    seen, order = [], []
    monkeypatch.setattr(installed.StepEditor, "step", lambda self, logits: seen.append(tuple(logits.shape)))
    drafts = Plain(speculative_config=Plain(num_speculative_tokens=2))
    runner = Plain(
        profile_run=lambda: order.append("vLLM's"), max_num_reqs=5, device="cpu", vllm_config=drafts
    )
    installed._show_to_the_profiler(runner, store, torch.float32)
    runner.profile_run()
    assert order == ["vLLM's"]
    assert head.seen == [7]
    assert seen == [(15, VOCABULARY)]
