"""OPERA on a model: against transformers' beam search, a twin that reads the model by hand, and fresh computations."""

from __future__ import annotations

import numpy as np
import opera_twin
import pytest
import torch
from llama_by_hand import embedded, forward
from transformers import LogitsProcessor

import reweigh
from checkpoints import FAMILIES, load, picture
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import build_inputs
from reweigh.rivals.opera import Loop
from reweigh.rivals.opera.search import Search


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
def test_without_penalty_it_is_beam_search_over_its_candidates(family, candidates, loaded, batch):
    model, processor = loaded(family)
    inputs, steps = batch(family), 9
    options = {"max_new_tokens": steps, "return_dict_in_generate": True, "output_scores": True}
    options["eos_token_id"] = None
    with reweigh.decoder(
        "opera", model, processor, num_beams=3, num_attn_candidates=candidates, penalty_weights=0
    ):
        ours = model.generate(**inputs, **options)
    theirs = model.generate(
        **inputs, **options, num_beams=3, do_sample=False, logits_processor=[Top(candidates)]
    )
    assert torch.equal(ours.sequences, theirs.sequences)
    # the official program divides by the length of prompt and answer
    lengths = inputs["attention_mask"].sum(dim=1) + steps
    totals = ours.sequences_scores * lengths, theirs.sequences_scores * steps
    torch.testing.assert_close(*totals, atol=1e-3, rtol=1e-4)


def test_one_step_by_hand(loaded, batch):
    """Penalised candidate scores of several steps equal a computation with full attention maps."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    length = inputs["input_ids"].shape[1]
    image = (inputs["input_ids"][0] == model.config.image_token_id).nonzero().flatten()
    seen, original = [], Loop._candidates

    def noted(self, search, logits):
        scores = original(self, search, logits)
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


def test_roll_back_recomputes_exactly_and_never_repeats_a_choice(loaded, batch, answer):
    model, processor = loaded("internvl")
    inputs = batch("internvl", rows=(0,))
    seen, original = [], Loop._roll_back

    def noted(self, search, length):
        before = search.moments[length].chosen
        scores = original(self, search, length)
        rejected = list(search.rejected[length])
        seen.append((length, search.beams.tokens.clone(), scores.clone(), rejected, before))
        assert self.branch.cache.get_seq_length() == self.branch.prompt_end + length
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
        wanted = wanted - wanted.amin(dim=-1, keepdim=True) - 999
        free = torch.ones_like(wanted, dtype=torch.bool)
        for parent, token in rejected:
            free[parent, token] = False
            assert scores[parent, token] == scores[parent].min()
        torch.testing.assert_close(scores[free], wanted[free], atol=2e-3, rtol=0)
    assert max(uses.values()) <= 5


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
    )
    with attached:
        found = model.generate(**inputs, max_new_tokens=26, num_return_sequences=2)
    assert attached.decoder.rollbacks == [rollbacks]
    for row, (_, tokens) in zip(found[:, inputs["input_ids"].shape[1] :].tolist(), wanted, strict=True):
        assert tuple(row[: len(tokens)]) == tokens


def test_a_padded_row_is_searched_as_alone(loaded, batch):
    model, processor = loaded("llava")
    options = {"max_new_tokens": 14, "return_dict_in_generate": True, "output_scores": True}
    with reweigh.decoder("opera", model, processor, num_beams=2):
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
    seen, score = [], Search.score
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Search, "score", lambda self, *args: seen.append(args) or score(self, *args))
        with reweigh.decoder("opera", model, processor, num_beams=2):
            output = model.generate(**inputs, max_new_tokens=12, eos_token_id=None)
    assert output.shape[1] == inputs["input_ids"].shape[1] + 12
    assert {part.dtype for logits, _, *rest in seen for part in (logits, *rest)} == {dtype}


@pytest.mark.parametrize(("family", "offset"), [("llava", 0), ("instructblip", 1)])
def test_the_image_of_instructblip_is_off_by_one(family, offset, loaded, batch):
    model, processor = loaded(family)
    inputs = batch(family, rows=(0,))
    columns = torch.isin(inputs["input_ids"][0], torch.tensor(find_anatomy(model).image_tokens)).nonzero()
    seen, original = [], Loop.run

    def noted(self, logits, config):
        seen.append(self.image)
        return original(self, logits, config)

    with pytest.MonkeyPatch.context() as patch, reweigh.decoder("opera", model, processor, num_beams=2):
        patch.setattr(Loop, "run", noted)
        model.generate(**inputs, max_new_tokens=2)
    assert seen == [(columns.flatten() + offset).tolist()]


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
