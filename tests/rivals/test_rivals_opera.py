"""OPERA: its arithmetic against twins, its beams against transformers', its roll-back against a fresh computation."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessor

import reweigh
from checkpoints import FAMILIES
from reweigh.errors import InputError, UnsupportedError
from reweigh.rivals.opera.loop import Loop
from reweigh.rivals.opera.overtrust import column_scores, grow, leant_on, penalties
from reweigh.rivals.opera.retrospection import Moment, Rules, Search
from reweigh.rivals.tools.beams import Beams, advance

sys.path.insert(0, str(Path(__file__).parent))

from llama_by_hand import embedded, forward

RULES = Rules(
    scale=50.0,
    threshold=2,
    candidates=2,
    weight=1.0,
    permute_history=False,
    prompt=4,
    eos=(),
    length_penalty=1.0,
    early_stopping=False,
    max_length=99,
)


def sums_of(square, scale):
    sums = torch.zeros(0, dtype=torch.float64)
    for i in range(len(square)):
        sums = grow(sums, torch.tensor(square[i, : i + 1]), scale)
    return sums


@settings(max_examples=40)
@given(st.integers(1, 14), st.sampled_from([1.0, 10.0, 50.0]), st.integers(0, 9))
def test_column_scores_are_products_in_16_bits(length, scale, seed):
    square = np.tril(np.random.default_rng(seed).uniform(1e-4, 0.3, (length, length)))
    found = column_scores(sums_of(square, scale)).numpy()
    for j in range(length):
        product = 1e-7 * np.prod([scale * square[i, j] for i in range(j, length)])
        if product >= 65504:
            assert found[j] >= 65504
            continue
        assert abs(found[j] - product) <= max(2**-24, product * 2**-10)


def test_an_overflowing_column_stays_finite_and_largest():
    sums = torch.tensor([[50.0, 60.0, 1.0]], dtype=torch.float64)
    scores = column_scores(sums)
    assert bool(torch.isfinite(scores).all())
    assert scores.argmax() == 1
    assert scores[0, 0] < scores[0, 1]
    assert scores[0, 0] >= 65504


def test_columns_below_16_bits_count_as_nothing():
    assert column_scores(torch.tensor([-5.0, -3.0], dtype=torch.float64)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("length", [10, 11])
def test_penalty_is_an_image_bonus_for_ten_tokens(length):
    torch.manual_seed(0)
    sums = torch.rand(2, 3, length, dtype=torch.float64) * 20
    image = torch.rand(2, 3)
    penalty, where = penalties(sums, image)
    scores = column_scores(sums)
    assert torch.equal(where, scores.argmax(-1))
    torch.testing.assert_close(penalty, -image.double() if length <= 10 else scores.amax(-1))


def test_rolling_back_needs_every_beam_and_a_late_token():
    history = torch.tensor([[12] * 16 + [3], [12] * 16 + [4]])
    assert leant_on(history, 12, 15)
    assert not leant_on(history, 12, 16)
    assert not leant_on(torch.where(history == 12, 9, history), 9, 15)
    history[1, 0] = 0
    assert not leant_on(history, 12, 15)


def test_a_used_up_place_moves_one_back_and_then_no_further():
    search = Search(RULES, 2, torch.device("cpu"))
    search.leanings = [torch.tensor([12, 12])] * 5
    assert [search.target() for _ in range(6)] == [13, 13, 12, 12, None, None]


def test_rewinding_restores_a_moment_and_rejects_what_followed():
    search = Search(RULES, 2, torch.device("cpu"))
    for length in range(6):
        tokens = torch.full((2, length), length)
        beams = Beams(tokens, torch.zeros(2))
        chosen = [(0, length), (1, length)]
        search.moments.append(Moment(beams=beams, sums=torch.zeros(2, length), chosen=chosen))
        search.leanings.append(torch.tensor([length, length]))
    search.rejected = {4: [(9, 9)], 3: [(0, 7)]}
    assert search.rewind(3) == 3
    assert search.beams.tokens.shape == (2, 3)
    assert len(search.moments) == len(search.leanings) == 4
    assert search.rejected == {3: [(0, 7), (0, 3), (1, 3)]}
    assert search.rollbacks == [(5, 3)]


class Top(LogitsProcessor):
    """Renormalise over the best candidates, as OPERA does without a penalty."""

    def __init__(self, count):
        self.count = count

    def __call__(self, input_ids, scores):
        best = scores.topk(self.count, -1).indices
        low = torch.full_like(scores, -999.0)
        return low.scatter(-1, best, scores.gather(-1, best)).log_softmax(-1)


@pytest.mark.parametrize("candidates", [2, 5])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_penalty_and_rollback_it_is_beam_search_over_its_candidates(
    family, candidates, loaded, batch
):
    model, processor = loaded(family)
    inputs = batch(family)
    options = {"max_new_tokens": 9, "return_dict_in_generate": True, "output_scores": True}
    attached = reweigh.decoder(
        "opera",
        model,
        processor,
        num_beams=3,
        num_attn_candidates=candidates,
        penalty_weights=0,
        rollback=False,
    )
    with attached:
        ours = model.generate(**inputs, **options)
    theirs = model.generate(
        **inputs, **options, num_beams=3, do_sample=False, logits_processor=[Top(candidates)]
    )
    length = inputs["input_ids"].shape[1]
    for a, b in zip(ours.sequences[:, length:], theirs.sequences[:, length:], strict=True):
        ends = [int(i) for i in (a == processor.tokenizer.eos_token_id).nonzero()[:1]] or [len(a)]
        assert torch.equal(a[: ends[0]], b[: ends[0]])
    torch.testing.assert_close(ours.sequences_scores, theirs.sequences_scores, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("stopping", [True, False])
def test_advance_is_the_beam_step_of_transformers(stopping, loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    ends = [11, 12, 13, 88, 330, 227]  # several ends, so that hypotheses finish early
    options = {"max_new_tokens": 12, "num_beams": 4, "early_stopping": stopping, "eos_token_id": ends}
    wanted = model.generate(
        **inputs, **options, do_sample=False, num_return_sequences=4, logits_processor=[Top(6)]
    )
    with reweigh.decoder("opera", model, processor, num_attn_candidates=6, penalty_weights=0, rollback=False):
        found = model.generate(**inputs, **options, num_return_sequences=4)
    for a, b in zip(found, wanted, strict=True):
        width = min(len(a), len(b))
        assert torch.equal(a[:width], b[:width])


def test_one_step_by_hand(loaded, batch):
    """Penalised candidate scores of several steps equal a computation with full attention maps."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    length = inputs["input_ids"].shape[1]
    image = (inputs["input_ids"][0] == model.config.image_token_id).nonzero().flatten()
    seen, original = [], Loop._candidates

    def noted(self, search, strand, logits):
        scores = original(self, search, strand, logits)
        seen.append(
            (search.beams.tokens.clone(), logits.clone(), scores.clone(), search.leanings[-1].clone())
        )
        return scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_candidates", noted)
        with reweigh.decoder(
            "opera", model, processor, num_beams=2, num_attn_candidates=3, scale_factor=300.0, threshold=99
        ):
            model.generate(**inputs, max_new_tokens=13, eos_token_id=None)
    assert len(seen) == 13
    for step in (0, 4, 9, 10, 12):
        tokens, logits, scores, leaning = seen[step]
        for beam in range(2):
            best = logits[beam].topk(3)
            places = []
            for value, token in zip(*best, strict=True):
                maps = []
                said = torch.cat([tokens[beam], token[None]])[None]
                whole = embedded(model, inputs, said)
                forward(model, whole, look=lambda layer, weights, maps=maps: maps.append(weights))
                square = maps[-1].amax(1)[0].double()
                square = square / square.sum(-1, keepdim=True)
                local = 300.0 * square[length:, length:]
                size = local.shape[0]
                column = [1e-7 * float(local[j:, j].prod()) for j in range(size)]
                rounded = np.array(column, dtype=np.float16).astype(float)
                places.append(int(rounded.argmax()))
                penalty = rounded.max() if size > 10 else -float(square[-1, image].sum())
                assert abs(scores[beam, token] - (value - penalty)) < max(1e-3, 2e-3 * abs(penalty))
            assert int(leaning[beam]) == int(torch.tensor(places).mode().values)
            assert int((scores[beam] > -990).sum()) == 3


@pytest.mark.parametrize("family", FAMILIES)
def test_candidates_abreast_have_the_rows_they_have_one_by_one(family, loaded, batch):
    model, processor = loaded(family)
    compared = []
    with reweigh.decoder("opera", model, processor, num_beams=2, num_attn_candidates=3) as attached:
        decoder = attached.decoder
        look_ahead, usual = decoder.look_ahead, decoder._one_by_one

        def both(strand, tokens):
            length, position = strand.cache.get_seq_length(), strand.position.clone()
            decoder._one_by_one = True
            wanted = look_ahead(strand, tokens)
            decoder._one_by_one = usual
            rows = look_ahead(strand, tokens)
            torch.testing.assert_close(rows, wanted, atol=1e-5, rtol=1e-4)
            assert rows.shape == (2, 3, length + 1)
            torch.testing.assert_close(rows.sum(-1), torch.ones(2, 3))
            assert strand.cache.get_seq_length() == length
            assert torch.equal(strand.position, position)
            compared.append(usual)
            return rows

        decoder.look_ahead = both
        model.generate(**batch(family), max_new_tokens=4, eos_token_id=None)
    assert compared == [family == "gemma3"] * 8


def test_roll_back_recomputes_exactly_and_never_repeats_a_choice(loaded, batch, answer):
    model, processor = loaded("internvl")
    inputs = batch("internvl", rows=(0,))
    seen, original = [], Loop._roll_back

    def noted(self, search, strand, length):
        before = search.moments[length].chosen
        scores = original(self, search, strand, length)
        rejected = list(search.rejected[length])
        seen.append((length, search.beams.tokens.clone(), scores.clone(), rejected, before))
        assert strand.cache.get_seq_length() == strand.prompt_end + length
        return scores

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loop, "_roll_back", noted)
        with reweigh.decoder(
            "opera", model, processor, num_beams=3, threshold=2, scale_factor=200.0
        ) as attached:
            model.generate(**inputs, max_new_tokens=36, eos_token_id=None)
            rollbacks = attached.decoder.rollbacks[0]
    assert seen, "the setting must provoke a roll-back"
    assert [to for _, to in rollbacks] == [length for length, *_ in seen]
    uses = {}
    for length, tokens, scores, rejected, before in seen:
        assert length >= 10
        uses[length] = uses.get(length, 0) + 1
        assert set(before) <= set(rejected)
        wanted = torch.cat([answer(model, inputs, tokens[beam][None]) for beam in range(3)])
        free = torch.ones_like(wanted, dtype=torch.bool)
        for parent, token in rejected:
            free[parent, token] = False
            assert scores[parent, token] == scores[parent].min()
        torch.testing.assert_close(scores[free], wanted[free], atol=5e-4, rtol=1e-3)
    assert max(uses.values()) <= 5


def test_a_penalty_beyond_all_bounds_never_lets_a_filler_win(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    with reweigh.decoder("opera", model, processor, scale_factor=1e9, num_beams=2, num_attn_candidates=3):
        output = model.generate(**inputs, max_new_tokens=16, eos_token_id=None)
    tokens = output[0, inputs["input_ids"].shape[1] :]
    with torch.no_grad():
        for step in range(12, 16):
            ids = output[:, : inputs["input_ids"].shape[1] + step]
            logits = model(**{**inputs, "input_ids": ids, "attention_mask": torch.ones_like(ids)}).logits[
                0, -1
            ]
            assert int(tokens[step]) in logits.topk(3).indices.tolist()


def test_advance_counts_only_the_first_beam_at_first():
    beams = Beams.start(3, torch.device("cpu"))
    log_probs = torch.log_softmax(torch.randn(3, 10), -1)
    grown, parents = advance(
        beams,
        log_probs,
        lambda tokens: torch.zeros(len(tokens), dtype=torch.bool),
        spare=6,
        length_penalty=1.0,
        early_stopping=False,
    )
    assert parents.tolist() == [0, 0, 0]
    assert grown.tokens[:, 0].tolist() == log_probs[0].topk(3).indices.tolist()
    assert grown.open
    assert math.isfinite(float(grown.scores.sum()))


def test_refusals(loaded, batch):
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    with pytest.raises(InputError, match="num_beams"):
        reweigh.decoder("opera", model, processor, num_beams=1)
    attached = reweigh.decoder("opera", model, processor)
    with attached, pytest.raises(InputError, match="beam search"):
        model.generate(**inputs, num_beams=1, max_new_tokens=2)
    with attached:
        first = model.generate(**inputs, max_new_tokens=2, return_dict_in_generate=True)
    assert first.sequences.shape[0] == 1
    from transformers import DynamicCache

    cache = DynamicCache()
    with torch.no_grad():
        model(**inputs, past_key_values=cache, use_cache=True)
    with attached, pytest.raises(UnsupportedError, match="kept cache"):
        model.generate(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            past_key_values=cache,
            max_new_tokens=2,
        )
