"""OPERA to the letter: the whole search equals a twin of the official one, slips included."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import reweigh
from checkpoints import load, picture
from reweigh.families.prompts import build_inputs
from reweigh.rivals.opera.decoder import OPERA
from reweigh.rivals.opera.hypotheses import Hypotheses
from reweigh.rivals.opera.letter import LetterSearch, products
from reweigh.rivals.opera.loop import Loop
from reweigh.rivals.opera.retrospection import Rules
from reweigh.rivals.tools.beams import Finished

sys.path.insert(0, str(Path(__file__).parent))

import opera_twin
from llama_by_hand import embedded, forward
from opera_twin import Toy


class ToyState:
    """What a branch state is to the loop, with the tokens themselves for a cache."""

    mask = None

    def __init__(self, toy, beams):
        self.said, self.prompt_end = [()] * beams, toy.prompt

    @property
    def fed(self):
        return self.prompt_end + len(self.said[0])

    def reorder(self, rows):
        self.said = [self.said[row] for row in rows.tolist()]

    def crop(self, columns):
        self.said = [one[: len(one) - columns] for one in self.said]


class ToyDecoder:
    """OPERA's options and search on a toy instead of a model."""

    image_offset = 0
    image_ids = None
    search = OPERA.search

    def __init__(self, toy, *, beams, candidates, scale, threshold, weight, official=True):
        self.toy, self.candidates, self.scale, self.threshold = toy, candidates, scale, threshold
        self.weight, self.official, self.rollback, self.permute_history = weight, official, True, False
        self.runner = SimpleNamespace(step=self.step)
        self._rows = None

    def read(self, logits):
        return logits[:, -1]

    def _row(self, said):
        row = torch.tensor(self.toy.row(said))
        return row / row.sum()

    def step(self, state, tokens):
        state.said = [(*one, *more) for one, more in zip(state.said, tokens.tolist(), strict=True)]
        self._rows = torch.stack([self._row(one) for one in state.said])[:, None]
        return torch.stack([torch.tensor(self.toy.logits(one)) for one in state.said])[:, None]

    def rows(self):
        return self._rows

    def look_ahead(self, state, tokens):
        return torch.stack(
            [
                torch.stack([self._row((*one, token)) for token in row])
                for one, row in zip(state.said, tokens.tolist(), strict=True)
            ]
        )


def ours(toy, *, image, eos, tokens, power=1.0, early=False, official=True, **options):
    decoder = ToyDecoder(toy, official=official, **options)
    state = ToyState(toy, options["beams"])
    loop = Loop(
        decoder,
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
    return loop.run(state, first, config)


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
    found = search.best()
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
    letter, repaired = ours(toy, **options), ours(toy, **options, official=False)

    def strangers(search):
        """Tokens of the best answer that were no candidates."""
        said = search.best()[0].tokens.tolist()
        best = [
            torch.tensor(toy.logits(said[:t])).topk(options["candidates"]).indices.tolist()
            for t in range(len(said))
        ]
        return sum(token not in among for token, among in zip(said, best, strict=True))

    assert strangers(repaired) == 0
    assert strangers(letter) > 0  # all candidates at minus infinity: fillers win


@pytest.mark.parametrize("seed", range(3))
def test_products_in_16_bits(seed):
    draw = np.random.default_rng(seed)
    maps = np.tril(draw.uniform(0.01, 0.4, (2, 14, 14))).astype(np.float32)
    found = products(torch.tensor(maps), 50.0)
    assert found.dtype == torch.float16
    for one, row in zip(maps, found.tolist(), strict=True):
        wanted = opera_twin.products([one[i, : i + 1] for i in range(14)], 50.0)
        np.testing.assert_allclose(row, np.array(wanted, dtype=np.float64), rtol=2e-3)
    assert products(torch.full((1, 9, 9), 1.0).tril(), 50.0)[0, 0] == float("inf")


RULES = Rules(
    scale=50.0,
    threshold=1,
    candidates=2,
    weight=1.0,
    permute_history=False,
    prompt=4,
    eos=(0,),
    length_penalty=1.0,
    early_stopping=False,
    max_length=99,
)


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
        assert search.sums.shape == (2, width, width)


def test_a_roll_back_forgets_the_next_place_and_the_end_of_the_list():
    search = LetterSearch(RULES, 2, torch.device("cpu"))
    walk(search, 20)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.rejected = {place: [(0, place)] for place in (12, 13, 14, 15, 505, 506, 511)}
    chosen = list(search.moments[12].chosen)
    assert search.rewind(12) == 12
    # 21 moments: states 14..20 are dropped one by one, which clears places 511..505; then place 13
    assert search.rejected == {12: [(0, 12), *chosen], 14: [(0, 14)], 15: [(0, 15)]}
    assert len(search.moments) == len(search.leanings) == 13


def test_a_roll_back_to_the_present_goes_to_the_step_before():
    search = LetterSearch(RULES, 2, torch.device("cpu"))
    walk(search, 12)
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    chosen = list(search.moments[11].chosen)
    assert search.rewind(12) == 12
    assert search.rejected == {12: chosen}
    assert search.beams.tokens.shape == (2, 11)


@pytest.mark.parametrize(("best", "going"), [(-4.5, True), (-5.5, False)])
def test_the_search_ends_by_the_length_with_the_new_token(best, going):
    search = LetterSearch(RULES, 2, torch.device("cpu"))
    for token in (1, 2):
        search.finished.add(torch.tensor([token]), -4.0, 4)
    search.remember()
    log_probs = torch.full((2, 60), best)
    search.advance(log_probs, lambda tokens: torch.zeros(len(tokens), dtype=torch.bool))
    assert search.beams.open is going  # a prompt of 4 and one token: -4.5 / 5 is better than -1


def test_the_map_of_an_earlier_moment_is_rebuilt():
    torch.manual_seed(0)
    search, kept = LetterSearch(RULES, 2, torch.device("cpu")), []
    for _ in range(15):
        walk(search, 1)
        kept.append(search.sums.clone())
    search.remember()
    search.leanings.append(torch.zeros(2, dtype=torch.int64))
    search.rewind(11)
    assert torch.equal(search.sums, kept[10])


def test_a_second_return_finds_what_was_finished_since_the_first():
    search = LetterSearch(RULES, 2, torch.device("cpu"))
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


class Whole:
    """A LLaVA read by hand, one full pass for each question, in the place of the toy."""

    def __init__(self, model, inputs):
        self.model, self.inputs = model, inputs
        self.prompt, self.vocab = inputs["input_ids"].shape[1], model.lm_head.weight.shape[0]
        self._seen = {}

    def _read(self, tokens):
        if tokens not in self._seen:
            maps = []
            whole = embedded(self.model, self.inputs, torch.tensor([tokens], dtype=torch.int64))
            logits = forward(self.model, whole, look=lambda layer, weights: maps.append(weights))
            self._seen[tokens] = logits[0, -1].numpy(), maps[-1].amax(1)[0, -1].numpy()
        return self._seen[tokens]

    def logits(self, tokens):
        return self._read(tokens)[0].copy()

    def row(self, tokens):
        return self._read(tokens)[1]


@pytest.mark.parametrize(
    "scale",
    [pytest.param(50.0, marks=pytest.mark.slow), pytest.param(250.0, marks=pytest.mark.slow), 2000.0],
)
def test_on_a_model_it_is_the_official_search(scale, loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    image = (inputs["input_ids"][0] == model.config.image_token_id).nonzero().flatten().tolist()
    options = {"scale": scale, "threshold": 2, "weight": 1.0, "image": image, "eos": [2], "tokens": 26}
    wanted, rollbacks = opera_twin.search(Whole(model, inputs), beams=2, candidates=3, **options)
    attached = reweigh.decoder(
        "opera",
        model,
        processor,
        num_beams=2,
        num_attn_candidates=3,
        scale_factor=scale,
        threshold=2,
        official=True,
    )
    with attached:
        found = model.generate(**inputs, max_new_tokens=26, num_return_sequences=2)
    assert attached.decoder.rollbacks == [rollbacks]
    for row, (_, tokens) in zip(found[:, inputs["input_ids"].shape[1] :].tolist(), wanted, strict=True):
        assert tuple(row[: len(tokens)]) == tokens


def test_a_padded_row_is_searched_as_alone(loaded, batch):
    model, processor = loaded("llava")
    options = {"max_new_tokens": 14, "return_dict_in_generate": True, "output_scores": True}
    with reweigh.decoder("opera", model, processor, num_beams=2, official=True):
        both = model.generate(**batch("llava"), **options)
        alone = [model.generate(**batch("llava", rows=(row,)), **options) for row in (0, 1)]
    for row in (0, 1):
        width = min(both.sequences.shape[1] - batch("llava")["input_ids"].shape[1], 14)
        one = alone[row].sequences[0, -14:]
        assert torch.equal(both.sequences[row, -width:][: len(one)], one[:width])
        torch.testing.assert_close(
            both.sequences_scores[row], alone[row].sequences_scores[0], atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_it_works_in_the_precision_of_the_model(dtype, checkpoint):
    model, processor = load(checkpoint("llava"))
    model = model.to(dtype)
    inputs = build_inputs(model, processor, [picture(1)], ["What is it?"])
    seen, score = [], LetterSearch.score
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LetterSearch, "score", lambda self, *args: seen.append(args) or score(self, *args))
        with reweigh.decoder("opera", model, processor, num_beams=2, official=True):
            output = model.generate(**inputs, max_new_tokens=12, eos_token_id=None)
    assert output.shape[1] == inputs["input_ids"].shape[1] + 12
    assert {part.dtype for logits, _, *rest in seen for part in (logits, *rest)} == {dtype}


def test_an_image_can_count_as_one_token(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    scores = []
    for image_ids in (None, 1):
        with reweigh.decoder("opera", model, processor, num_beams=2, official=True, image_ids=image_ids):
            output = model.generate(
                **inputs,
                max_new_tokens=5,
                eos_token_id=None,
                return_dict_in_generate=True,
                output_scores=True,
            )
        scores.append(float(output.sequences_scores[0]))
    length = inputs["input_ids"].shape[1] + 5
    assert scores[0] * length == pytest.approx(scores[1] * (length - 15), rel=1e-5)
