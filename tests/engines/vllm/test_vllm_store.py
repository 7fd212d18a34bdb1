"""Evidence read piece by piece must be the evidence of the whole, and what was not computed must never be made up."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from reweigh.engines.vllm.store import Entry, Recall, Registered, Store, prompt_key
from reweigh.engines.vllm.working import _warm
from reweigh.method.measure.evidence import read_evidence
from reweigh.method.measure.kernels.base import narrowed
from reweigh.method.measure.lens import Lens

VOCABULARY, WIDTH, PROMPT = 23, 8, 20
TOKENS = torch.tensor([2, 5, 11, 19])


def make_store(*, limit: int = 1 << 20, registered: bool = True, layers: tuple[int, ...] = (1,)) -> Store:
    torch.manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY, bias=False)
    table = Registered(TOKENS, torch.tensor([0.5, 0.9, 0.3, 0.7]), 0.25) if registered else None
    ticks = itertools.count()
    return Store(
        Lens(nn.LayerNorm(WIDTH), head), layers, table, limit=limit, clock=lambda: float(next(ticks))
    )


def states(seed: int = 1) -> torch.Tensor:
    return torch.randn(PROMPT, WIDTH, generator=torch.Generator().manual_seed(seed))


def entry(positions=(3, 4, 5, 9, 10), beta: float = 1.0, key: str = "k") -> Entry:
    return Entry(key, list(positions), beta, PROMPT)


def expected(store: Store, positions) -> torch.Tensor:
    """By hand from the definition: mean of 1/rank over the positions, then clip((b - x)/b0, 0, 1)."""
    logits = store.lens.read(states()[list(positions)])
    ranks = 1 + (logits[:, None, :] > logits[:, :, None]).sum(-1)
    dmrr = (1.0 / ranks).mean(0)
    strengths = torch.zeros(VOCABULARY)
    table = store.registered
    strengths[table.tokens] = ((table.references - dmrr[table.tokens]) / table.scale).clamp(0, 1)
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
    assert not one.is_edited
    store.feed(one, 10, [states()[10:11]])
    assert one.is_edited


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
    assert one.is_edited


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
        whole = read_evidence(store.lens, states(seed)[one.positions]).dmrr()
        assert torch.equal(one.evidence[row], whole)
    assert one.strengths is None


def test_memory_is_bounded_and_drops_what_was_used_longest_ago():
    recall, vector = Recall(40), torch.zeros(4)
    for key in "ab":
        recall.put(key, vector)
    assert recall.get("a") is not None
    recall.put("c", vector)
    assert recall.get("b") is None
    assert recall.get("a") is not None
    assert recall.bytes == 32
    recall.put("huge", torch.zeros(11))
    assert recall.get("huge") is None
    assert recall.bytes == 32
    recall.put("a", torch.zeros(2))
    assert recall.bytes == 24


def test_a_key_covers_text_before_the_last_image_and_the_images_themselves():
    tokens, image = list(range(10)), ("hash", 2, 3)
    key = prompt_key(tokens, [image])
    assert key == prompt_key([*tokens[:5], 99, 98], [image])  # what follows the image does not count
    assert key != prompt_key([7, *tokens[1:]], [image])
    assert key != prompt_key(tokens, [("other", 2, 3)])
    assert key != prompt_key(tokens, [("hash", 1, 4)])
    assert key != prompt_key(tokens, [image, ("hash", 6, 2)])


class Counting(nn.Module):
    """A head like vLLM's, which is no linear layer: only running it tells its type."""

    def __init__(self):
        super().__init__()
        self.inner, self.seen = nn.Linear(WIDTH, VOCABULARY, bias=False), []
        self.out_features, self.in_features = VOCABULARY, WIDTH

    def forward(self, states):
        self.seen.append(self.inner(states))
        return self.seen[-1]


def counting_store(chunk: int = 288) -> tuple[Store, Counting]:
    torch.manual_seed(0)
    head = Counting()
    table = Registered(TOKENS, torch.full((len(TOKENS),), 0.5), 0.25)
    return Store(Lens(nn.LayerNorm(WIDTH), head, chunk=chunk), (1,), table), head


def test_the_head_runs_once_for_each_chunk_of_positions():
    store, head = counting_store(chunk=2)
    store.feed(entry(), 0, [states()])
    assert [len(logits) for logits in head.seen] == [2, 2, 1]


@torch.inference_mode()
def test_warming_up_takes_the_kernel_of_the_logits_own_type():
    store, head = counting_store()
    _warm(store, torch.float32, "cpu")
    [logits] = head.seen
    assert narrowed(logits).dtype == torch.float32
