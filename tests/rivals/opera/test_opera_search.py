"""OPERA's search equals a twin of the official one, slips included."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import opera_twin
import pytest
import torch
from opera_twin import Toy

from reweigh.rivals.opera import Loop
from reweigh.rivals.opera.search import Finished, Hypotheses, Search, column_scores, leant_on


class ToyBranch:
    """What a branch is to the loop, with the tokens themselves for a cache."""

    mask = torch.ones(1, 5)

    def __init__(self, toy, beams):
        self.toy, self.said, self.prompt_end = toy, [()] * beams, toy.prompt
        self.latest = None

    @property
    def fed(self):
        return self.prompt_end + len(self.said[0])

    def reorder(self, rows):
        self.said = [self.said[row] for row in rows.tolist()]

    def crop(self, columns):
        self.said = [one[: len(one) - columns] for one in self.said]

    def step(self, tokens):
        self.said = [(*one, *more) for one, more in zip(self.said, tokens.tolist(), strict=True)]
        rows = torch.stack([torch.tensor(self.toy.row(one)) for one in self.said])
        self.latest = rows / rows.sum(dim=-1, keepdim=True)
        return torch.stack([torch.tensor(self.toy.logits(one)) for one in self.said])[:, None]

    def peek(self, tokens):
        self.step(tokens)
        self.crop(1)


def ours(toy, *, image, eos, tokens, power=1.0, early=False, **options):
    branch = ToyBranch(toy, options["beams"])
    loop = Loop(
        SimpleNamespace(**options, row=lambda: branch.latest),
        branch,
        torch.zeros(toy.prompt, dtype=torch.int64),
        image,
        lambda ids, scores: scores,
        lambda ids, scores: torch.tensor([ids.shape[1] - toy.prompt >= tokens] * len(ids)),
    )
    config = SimpleNamespace(
        num_beams=options["beams"],
        _eos_token_tensor=torch.tensor(eos) if eos else None,
        length_penalty=power,
        early_stopping=early,
        max_length=toy.prompt + tokens,
    )
    first = torch.stack([torch.tensor(toy.logits(()))] * options["beams"])
    return loop.run(first, config)


USUAL = {
    "beams": 3,
    "candidates": 4,
    "scale": 50.0,
    "threshold": 3,
    "weight": 1.0,
    "image": [1, 2],
    "eos": [],
}
CASES = {
    "no leaning": (Toy(1), {"tokens": 20}),
    "one anchor": (Toy(2, anchor=11), {"tokens": 40}),
    "used up": (Toy(3, anchor=12), {"tokens": 40, "candidates": 2, "beams": 2}),
    "low threshold": (Toy(4, anchor=10), {"tokens": 30, "threshold": 1}),
    "no threshold": (Toy(5, anchor=10), {"tokens": 24, "threshold": 0}),
    "ends": (Toy(6, anchor=11, end=7, end_bonus=1.0), {"tokens": 36, "eos": [7]}),
    "many ends": (Toy(7, end=7, end_bonus=4.0), {"tokens": 36, "eos": [7, 9], "beams": 4}),
    "early": (Toy(8, end=7, end_bonus=3.0), {"tokens": 36, "eos": [7], "early": True}),
    "long wins": (Toy(9, anchor=11, end=7, end_bonus=2.0), {"tokens": 36, "eos": [7], "power": 2.0}),
    "one candidate": (Toy(10, anchor=11), {"tokens": 30, "candidates": 1}),
    "fewer candidates than beams": (
        Toy(11, end=3, end_bonus=1.0),
        {"tokens": 16, "candidates": 2, "beams": 5},
    ),
    "overflow": (Toy(12, anchor=10, strength=3000), {"tokens": 40, "threshold": 99}),
    "overflow and roll-back": (Toy(13, anchor=10, strength=3000), {"tokens": 40, "threshold": 2}),
    "heavy": (Toy(14, anchor=13, strength=900), {"tokens": 40, "weight": 0.3, "scale": 80.0, "threshold": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_search_is_the_official_one(name):
    toy, options = CASES[name]
    options = {**USUAL, **options}
    wanted, rollbacks = opera_twin.search(toy, **options)
    search = ours(toy, **options)
    found = search.finished.best()
    assert search.rollbacks == rollbacks
    assert [tuple(one.tokens.tolist()) for one in found] == [tokens for _, tokens in wanted]
    np.testing.assert_allclose([one.score for one in found], [score for score, _ in wanted], rtol=1e-5)


def test_the_cases_have_what_they_are_named_after():
    rolled = {
        name: len(ours(toy, **{**USUAL, **options}).rollbacks) for name, (toy, options) in CASES.items()
    }
    assert all(rolled[name] for name in ("one anchor", "used up", "low threshold", "no threshold", "heavy"))
    assert max(rolled.values()) >= 4
    toy, options = CASES["overflow"]
    options = {**USUAL, **options}
    said = ours(toy, **options).finished.best()[0].tokens.tolist()
    best = [
        torch.tensor(toy.logits(said[:t])).topk(options["candidates"]).indices.tolist()
        for t in range(len(said))
    ]
    # all candidates at minus infinity: fillers win
    assert any(token not in among for token, among in zip(said, best, strict=True))


@pytest.mark.parametrize("seed", range(3))
def test_column_scores_are_products_in_16_bits(seed):
    draw = np.random.default_rng(seed)
    maps = np.tril(draw.uniform(0.01, 0.4, (2, 14, 14))).astype(np.float32)
    found = column_scores(torch.tensor(maps), 50.0)
    assert found.dtype == torch.float16
    for one, row in zip(maps, found.tolist(), strict=True):
        wanted = opera_twin.products([one[i, : i + 1] for i in range(14)], 50.0)
        np.testing.assert_allclose(row, np.array(wanted, dtype=np.float64), rtol=2e-3)
    assert column_scores(torch.full((1, 9, 9), 1.0).tril(), 50.0)[0, 0] == float("inf")


def made(beams=2, eos=(0,)):
    options = SimpleNamespace(scale=50.0, threshold=1, candidates=2, weight=1.0)
    config = SimpleNamespace(
        num_beams=beams,
        _eos_token_tensor=torch.tensor(eos),
        length_penalty=1.0,
        early_stopping=False,
        max_length=99,
    )
    return Search(options, config, 4, torch.device("cpu"))


def walk(search, steps):
    """Take steps with distinct best tokens."""
    for _ in range(steps):
        search.remember()
        search.leanings.append(torch.zeros(2, dtype=torch.int64))
        logits = torch.full((2, 60), -5.0)
        logits[0, len(search.moments) % 50 + 1], logits[1, len(search.moments) % 50 + 2] = 2.0, 1.0
        parents = search.advance(
            logits.log_softmax(-1), lambda tokens: torch.zeros(len(tokens), dtype=torch.bool)
        )
        width = search.beams.tokens.shape[1]
        search.grow(parents, torch.rand(2, width))
        assert search.maps.shape == (2, width, width)


def test_a_roll_back_forgets_the_next_place_and_the_end_of_the_list():
    search = made()
    walk(search, 20)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.rejected = {place: [(0, place)] for place in (12, 13, 14, 15, 505, 506, 511)}
    chosen = list(search.moments[12].chosen)
    search.rewind(12)
    # 21 moments: states 14..20 are dropped one by one, which clears places 511..505; then place 13
    assert search.rejected == {12: [(0, 12), *chosen], 14: [(0, 14)], 15: [(0, 15)]}
    assert len(search.moments) == len(search.leanings) == 13


def test_a_roll_back_to_the_present_goes_to_the_step_before():
    search = made()
    walk(search, 12)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    chosen = list(search.moments[11].chosen)
    search.rewind(12)
    assert search.rejected == {12: chosen}
    assert search.beams.tokens.shape == (2, 11)


@pytest.mark.parametrize(("best", "going"), [(-4.5, True), (-5.5, False)])
def test_the_search_ends_by_the_length_with_the_new_token(best, going):
    search = made()
    for token in (1, 2):
        search.finished.add(torch.tensor([token]), -4.0, 4)
    search.remember()
    log_probs = torch.full((2, 60), best)
    search.advance(log_probs, lambda tokens: torch.zeros(len(tokens), dtype=torch.bool))
    assert search.beams.open is going  # a prompt of 4 and one token: -4.5 / 5 is better than -1


def test_the_map_of_an_earlier_moment_is_rebuilt():
    torch.manual_seed(0)
    search, kept = made(), []
    for _ in range(15):
        walk(search, 1)
        kept.append(search.maps.clone())
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.rewind(11)
    assert torch.equal(search.maps, kept[10])


def test_a_second_return_finds_what_was_finished_since_the_first():
    search = made()
    walk(search, 15)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.finished.add(torch.tensor([1]), -1.0, 10)
    search.rewind(11)
    assert search.finished.found == []  # of the first return it is forgotten
    search.finished.add(torch.tensor([2]), -2.0, 10)
    walk(search, 3)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.rewind(11)
    assert [one.tokens.tolist() for one in search.finished.found] == [[2]]


def test_of_equal_hypotheses_the_later_is_better_and_a_full_list_keeps_the_old():
    kept = Hypotheses(2, 1.0, False, 50)
    kept.add(torch.tensor([1]), -4.0, 4)
    kept.add(torch.tensor([2]), -8.0, 8)
    assert [one.tokens.item() for one in kept.best()] == [2, 1]
    kept.add(torch.tensor([3]), -2.0, 2)
    assert [one.tokens.item() for one in kept.found] == [1, 2]
    kept.add(torch.tensor([4]), -1.0, 2)
    assert [one.tokens.item() for one in kept.found] == [2, 4]
    assert kept.is_done(-10.0, 10)
    assert not kept.is_done(-9.0, 10)
    never = Hypotheses(1, 1.0, "never", 50, [Finished(-0.5, torch.tensor([1]))])
    assert never.is_done(-30.0, 10)
    assert not never.is_done(-20.0, 10)  # at 50 tokens it could be -0.4
    assert Hypotheses(1, 1.0, True, 50, [Finished(-0.5, torch.tensor([1]))]).is_done(0.0, 1)


def test_enough_beams_continue_where_several_tokens_end_an_answer():
    """With 2 k continuations, as the official program looks at, none would be left."""
    search = made(eos=(0, 1, 2, 3))
    search.remember()
    log_probs = torch.full((2, 60), -20.0)
    log_probs[:, :4] = -1.0
    search.advance(log_probs, lambda tokens: torch.zeros(len(tokens), dtype=torch.bool))
    assert search.beams.tokens.shape == (2, 1)
    assert not set(search.beams.tokens.flatten().tolist()) & {0, 1, 2, 3}


def test_rolling_back_needs_every_beam_and_a_late_token():
    history = torch.tensor([[12] * 16 + [3], [12] * 16 + [4]])
    assert leant_on(history, 12, 15)
    assert not leant_on(history, 12, 16)
    assert not leant_on(torch.where(history == 12, 9, history), 9, 15)
    history[1, 0] = 0
    assert not leant_on(history, 12, 15)


def test_a_used_up_place_moves_one_back_and_then_no_further():
    search = made()
    search.leanings = [torch.tensor([12, 12])] * 5  # more than the threshold
    assert [search.target() for _ in range(6)] == [13, 13, 12, 12, None, None]


def test_advance_counts_only_the_first_beam_at_first():
    search = made(beams=3)
    search.remember()
    log_probs = torch.log_softmax(torch.randn(3, 10, generator=torch.Generator().manual_seed(0)), -1)
    parents = search.advance(log_probs, lambda tokens: torch.zeros(len(tokens), dtype=torch.bool))
    best = [token for token in log_probs[0].argsort(descending=True).tolist() if token != 0][:3]
    assert parents.tolist() == [0, 0, 0]
    assert search.beams.tokens[:, 0].tolist() == best
    assert search.beams.open
