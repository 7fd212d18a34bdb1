"""HALC equals a twin that knows no cache; without words to look up it is DoLa; its refusals."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
from transformers import DynamicCache, LogitsProcessor

import reweigh
from checkpoints import FAMILIES, judges, picture
from reweigh.engines.transformers.manager import HookManager
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import build_inputs
from reweigh.rivals.halc.pictures import crop, with_pictures
from reweigh.rivals.halc.walk import CENTER, Beam, Walk, Words, bare, contrasts, fields, survivors

STEPS = 10
PICTURES = {0: picture(1, (70, 50)), 1: picture(2, (56, 56)), 2: picture(3, (56, 56))}


class Wordy(LogitsProcessor):
    """Makes a random model write words: after a piece that begins none, one that does is likelier."""

    def __init__(self, tokenizer, anatomy):
        pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        found = [token for token, piece in enumerate(pieces) if piece[:1] == "Ġ" and piece[1:].isalpha()]
        self.never = list(anatomy.image_tokens)
        self.first = torch.zeros(anatomy.vocab_size)
        self.first[found] = 50.0
        self.begins = set(found)

    def __call__(self, input_ids, scores):
        last = int(input_ids[0, -1]) if input_ids.shape[1] else None
        scores = scores if last in self.begins else scores + self.first
        scores = scores.clone()
        scores[:, self.never] = float("-inf")
        return scores


def run(model, inputs, steps=STEPS, **options):
    return model.generate(**inputs, max_new_tokens=steps, do_sample=False, eos_token_id=None, **options)


def has_letter(word):
    return any(map(str.isalpha, word))


def never(word):
    return False


def no_boxes(image, word):
    return []


def by_letters(image, texts):
    """A made-up matcher: any function of the texts will do."""
    return [sum(ord(letter) * (place % 7) for place, letter in enumerate(text)) % 101 for text in texts]


def by_word(image, word):
    """A made-up detector: nothing, one box, two, or too many, by the word's length."""
    boxes = [(0.1, 0.2, 0.7, 0.9), (0.3, 0.3, 0.5, 0.6), (0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 1.0, 1.0)]
    return boxes[: (0, 1, 2, 4)[len(word) % 4]]


def twin(model, processor, inputs, image, answer, wordy, *, beams, candidates, steps, delete):
    """The method by fresh prefills only: no cache is kept, cropped or copied."""
    tokenizer, prompt = processor.tokenizer, inputs["input_ids"]

    def begins(token):
        piece = tokenizer.convert_ids_to_tokens(token) or ""
        return token == tokenizer.eos_token_id or any(mark in piece for mark in "▁Ġ.")

    def text(tokens):
        return tokenizer.decode(tokens, skip_special_tokens=True).strip()

    def after(given, tokens):
        return answer(model, given, torch.tensor([tokens], dtype=torch.int64))[0]

    def new_first_tokens(before, box):
        views = []
        for field in fields(box):
            given = with_pictures(
                find_anatomy(model), processor, inputs, 0, prompt[0].tolist(), [crop(image, field)]
            )
            views.append(after(given, before))
        row = torch.tensor([prompt[0].tolist() + before])
        scores = [wordy(row, one[None])[0] for one in contrasts(torch.stack(views), candidates // 2)]
        return list(dict.fromkeys(int(one.argmax()) for one in scores))

    def without(tokens, gone):
        kept, dropped = [], False
        for place, token in enumerate(tokens):
            dropped = place in gone or (dropped and not begins(token))
            kept += [] if dropped else [token]
        return kept

    def judged(tokens, gone):
        """The word that has just been written again still counts."""
        last = max((place for place, one in enumerate(tokens) if begins(one)), default=0)
        return text(without(tokens, gone - {last}))

    layers = list(range(0, len(find_anatomy(model).blocks), 2))
    dola = reweigh.decoder("dola", model, processor, layers=layers, repetition_penalty=1.0)
    alive = [([], frozenset(), frozenset())]
    while not all(len(tokens) >= steps for tokens, *_ in alive):
        options, ranked = [], False
        for tokens, seen, gone in alive:
            if len(tokens) >= steps:
                options.append((tokens, seen, gone))
                continue
            row = torch.tensor([prompt[0].tolist() + tokens])
            with dola:
                scores = after(inputs, tokens)
            token = int(wordy(row, scores[None])[0].argmax())
            start = max((place for place, one in enumerate(tokens) if begins(one)), default=0)
            word = bare(text(tokens[start:]))
            boxes = (
                by_word(image, word)
                if tokens
                and begins(token)
                and start not in seen
                and has_letter(word)
                and not {".", ","} & set(word)
                else None
            )
            if boxes is None or len(boxes) > 3:
                options.append(([*tokens, token], seen, gone))
                continue
            ranked = True
            box = min(boxes, key=lambda one: (one[2] - one[0]) * (one[3] - one[1])) if boxes else CENTER
            for first in new_first_tokens(tokens[:start], box):
                new = bare(text([first]))
                drop = delete and not boxes and start >= 7 and bool(new) and (new in word or word in new)
                options.append(([*tokens[:start], first], seen | {start}, gone | {start} if drop else gone))
        if ranked:
            texts = [judged(tokens, gone) for tokens, _, gone in options]
            options = [options[place] for place in survivors(by_letters(image, texts), texts, beams)]
        alive = options
    tokens, _, gone = alive[0]
    return without(tokens, gone)


@pytest.mark.parametrize(
    ("family", "beams", "candidates", "delete"),
    [
        ("llava", 3, 4, False),
        *((family, 1, 2, False) for family in FAMILIES),
        *((family, 2, 4, True) for family in FAMILIES),
    ],
)
def test_answers_equal_a_twin_without_cache(family, beams, candidates, delete, loaded, batch, answer):
    model, processor = loaded(family)
    inputs = batch(family, rows=(0,))
    looked_up = functools.partial(by_word)
    looked_up.is_oracle = not delete
    options = {"detect": looked_up, "match": by_letters, "is_entity": has_letter}
    session = reweigh.decoder("halc", model, processor, beams=beams, candidates=candidates, **options)
    examined = []
    session.decoder.detect = lambda image, word: examined.append(word) or looked_up(image, word)
    wordy = Wordy(processor.tokenizer, find_anatomy(model))
    with session.using(pictures=[PICTURES[0]]):
        found = run(model, inputs, logits_processor=[wordy])[0, inputs["input_ids"].shape[1] :].tolist()
    wanted = twin(
        model,
        processor,
        inputs,
        PICTURES[0],
        answer,
        wordy,
        beams=beams,
        candidates=candidates,
        steps=STEPS,
        delete=delete,
    )
    assert found == wanted
    assert examined


@pytest.mark.parametrize("family", FAMILIES)
def test_without_words_to_look_up_it_is_dola(family, loaded, batch):
    model, processor = loaded(family)
    inputs = batch(family)
    options = {"detect": no_boxes, "match": by_letters, "is_entity": never}
    greedy = run(model, inputs)
    layers = range(0, len(find_anatomy(model).blocks), 2)
    with reweigh.decoder("dola", model, processor, layers=list(layers), repetition_penalty=1.0):
        dola = run(model, inputs)
    session = reweigh.decoder("halc", model, processor, **options)
    with session.using(pictures=[PICTURES[0], PICTURES[1]]):
        assert torch.equal(dola, run(model, inputs))
    assert torch.equal(greedy, run(model, inputs))


def test_what_the_caller_forbids_is_not_a_candidate_either(loaded, batch):
    """A word written again goes through the caller's logits processors like every other token."""
    model, processor = loaded("llava")
    inputs = batch("llava", rows=(0,))
    options = {"detect": no_boxes, "match": by_letters, "is_entity": has_letter, "beams": 1, "candidates": 2}
    session = reweigh.decoder("halc", model, processor, **options)
    wordy = Wordy(processor.tokenizer, find_anatomy(model))
    length = inputs["input_ids"].shape[1]
    with session.using(pictures=[PICTURES[0]]):
        said = set(run(model, inputs, logits_processor=[wordy])[0, length:].tolist())
        for token in sorted(said):
            other = run(model, inputs, logits_processor=[wordy], bad_words_ids=[[token]])
            assert token not in other[0, length:].tolist()


def test_rows_are_decoded_by_themselves_and_text_rows_as_the_base_model_does(loaded):
    model, processor = loaded("llava")
    texts = ["What is it?", "Tell me a story.", "Describe it, please."]
    images = [picture(1), None, picture(2)]
    inputs = build_inputs(model, processor, images, texts)
    options = {"detect": by_word, "match": by_letters, "is_entity": has_letter}
    session = reweigh.decoder("halc", model, processor, **options)
    with session.using(pictures=images):
        both = run(model, inputs)
    base = run(model, inputs)
    assert torch.equal(both[1], base[1])
    for row in (0, 2):
        one = build_inputs(model, processor, [images[row]], [texts[row]])
        with session.using(pictures=[images[row]]):
            alone = run(model, one)
        assert torch.equal(both[row, -STEPS:], alone[0, -STEPS:])


def test_words_begin_and_end_where_the_official_program_says(loaded):
    _, processor = loaded("llava")
    words = Words(processor.tokenizer, [2])
    ids = processor.tokenizer(" a dog. It sits", add_special_tokens=False)["input_ids"]
    starts = [place for place, token in enumerate(ids) if words.begins(token)]
    assert starts[0] == 0
    assert words.begins(2)
    assert words.last_start(ids) == starts[-1]
    assert words.text(ids[starts[-1] :]) == "sits"
    assert words.text(words.without(ids, {starts[-1]})) == "a dog. It"
    assert [bare(word) for word in ("dogs.", "'cat',", "[bus)", "s", "...")] == ["dog", "cat", "bu", "", ""]


def test_words_with_marks_inside_are_not_looked_up(loaded):
    model, processor = loaded("llava")
    asked = []
    options = {"detect": no_boxes, "match": by_letters, "is_entity": lambda word: asked.append(word) or True}
    decoder = reweigh.decoder("halc", model, processor, **options).decoder
    walk = Walk(decoder, {}, 0, None, torch.zeros(0), None, None)
    assert [walk.is_looked_up(word) for word in ("dog", "a.b", "a,b", "")] == [True, False, False, False]
    assert asked == ["dog"]
    listed = reweigh.decoder("halc", model, processor, **{**options, "is_entity": ["dogs"]}).decoder
    assert [listed.is_entity(word) for word in ("Dog", "cat")] == [True, False]


def test_refusals(loaded, batch):
    model, processor = loaded("llava")
    options = {"detect": no_boxes, "match": by_letters}
    with pytest.raises(InputError, match="detect"):
        reweigh.decoder("halc", model, processor, match=by_letters)
    for wrong in (3, 0, 14):
        with pytest.raises(InputError, match=f"{wrong} candidates"):
            reweigh.decoder("halc", model, processor, candidates=wrong, **options)
    session = reweigh.decoder("halc", model, processor, **options)
    with session, pytest.raises(InputError, match="sample"):
        model.generate(**batch("llava"), do_sample=True, max_new_tokens=2)
    one = batch("llava", rows=(0,))
    cache, ids = DynamicCache(), torch.cat([one["input_ids"], torch.tensor([[5, 6]])], dim=1)
    with session, torch.no_grad():
        model(**one, past_key_values=cache, use_cache=True)
        more = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "past_key_values": cache}
        with pytest.raises(UnsupportedError, match="kept cache"):
            model.generate(**more, max_new_tokens=2)


def test_a_record_names_what_was_plugged_in(loaded):
    model, processor = loaded("llava")
    record = reweigh.decoder("halc", model, processor, detect=no_boxes, match=by_letters, beams=2).record()
    name = by_letters.__module__
    assert record["options"] == {"detect": f"{name}.no_boxes", "match": f"{name}.by_letters", "beams": 2}


def test_it_runs_on_checkpoints_of_a_detector_and_a_matcher(loaded, tmp_path):
    model, processor = loaded("llava")
    session = reweigh.decoder(
        "halc",
        model,
        processor,
        detect=str(judges.grounding_dino(tmp_path / "dino")),
        match=str(judges.blip(tmp_path / "blip")),
        is_entity=str.isalpha,
        beams=2,
    )
    texts = session.describe([picture(1), picture(2)], max_new_tokens=6)
    assert len(texts) == 2


def test_a_finished_generation_is_released(loaded, batch):
    model, processor = loaded("llava")
    alive = []
    options = {"detect": no_boxes, "match": by_letters, "is_entity": str.isalpha}
    session = reweigh.decoder("halc", model, processor, **options)
    with pytest.MonkeyPatch.context() as patch:
        made = Beam.__init__

        def noted(self, branch, *args, **kwargs):
            made(self, branch, *args, **kwargs)
            alive.append(weakref.ref(branch))

        patch.setattr(Beam, "__init__", noted)
        with session.using(pictures=[PICTURES[0], PICTURES[1]]):
            run(model, batch("llava"), steps=6)
            gc.collect()
            assert len(alive) > 2
            assert all(one() is None for one in alive)


def test_nothing_of_a_generation_that_failed_is_kept(loaded, batch):
    model, processor = loaded("llava")

    base = run(model, batch("llava"))

    def broken(image, word):
        raise InputError("no detector today")

    options = {"detect": broken, "match": by_letters, "is_entity": has_letter}
    session = reweigh.decoder("halc", model, processor, **options)
    wordy = Wordy(processor.tokenizer, find_anatomy(model))
    pictures = [PICTURES[0], PICTURES[1]]
    with session.using(pictures=pictures), pytest.raises(InputError, match="no detector"):
        run(model, batch("llava"), logits_processor=[wordy])
    assert HookManager.of(session.decoder.anatomy).forward is None
    assert torch.equal(base, run(model, batch("llava")))
