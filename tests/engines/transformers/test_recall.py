"""Recalled evidence gives the same text without reading a state, and is never mistaken for another's."""

from __future__ import annotations

import dataclasses
import functools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from PIL import Image

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY, load
from reweigh.engines.transformers.recall import Recall
from reweigh.errors import InputError, NumericsError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import reading_hash
from reweigh.families.prompts import build_inputs
from reweigh.runtime.memory import EvidenceCache
from reweigh.runtime.reader import Reader

pytestmark = pytest.mark.numerics

BETA = 4.0


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


@pytest.fixture
def unread(monkeypatch):
    """Call it, and from then on nothing may be read through the lens."""

    def forbid():
        def refuse(*_):
            raise AssertionError("a state was read")

        monkeypatch.setattr(Reader, "read", refuse)

    return forbid


def attach(case, **options):
    return reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY), beta=BETA, **options)


def logits(case, inputs, **options):
    options = {"return_dict_in_generate": True, "output_logits": True, "max_new_tokens": 6, **options}
    with torch.no_grad():
        return torch.stack(case.model.generate(**inputs, do_sample=False, **options).logits)


def pictures(*shades):
    return [Image.new("RGB", (40, 40), (shade, 90, 255 - shade)) for shade in shades]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("beams", [1, 2])
def test_given_evidence_decodes_like_measured_evidence(case, unread, beams):
    inputs = case.inputs()
    attached = attach(case)
    every = reweigh.measure(case.model, inputs, layers=[attached.layer])
    with attached:
        online = logits(case, inputs, num_beams=beams)
    unread()
    with attached, attached.request(evidence=every):
        given = logits(case, inputs, num_beams=beams)
    # a search for beams measures on a larger batch, which may round differently and change a rank
    torch.testing.assert_close(given, online, rtol=0, atol=0 if beams == 1 else 0.1)
    with attached, pytest.raises(AssertionError, match="state"):
        logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_of_another_picture_is_taken_as_given(case):
    one, other = case.inputs(), case.inputs()
    other["pixel_values"] = other["pixel_values"].flip(-1) * -0.7
    attached = attach(case)
    with attached:
        own = logits(case, one)
    wrong = reweigh.measure(case.model, other, layers=[attached.layer])
    with attached, attached.request(evidence=wrong):
        assert not torch.equal(logits(case, one), own)
    with attached:
        assert torch.equal(logits(case, one), own)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_that_does_not_fit_is_refused(case):
    inputs = case.inputs()
    attached = attach(case)
    tokens = attached.table.tokens.tolist()
    with (
        attached,
        attached.request(evidence=[]),
        pytest.raises(InputError, match="0 rows"),
    ):
        logits(case, inputs)
    for tokens_of, layer, words in ((tokens[:-1], attached.layer, "tokens"), (None, 0, "layer 2")):
        given = reweigh.measure(case.model, inputs, layers=[layer], tokens=tokens_of)
        with attached, attached.request(evidence=given), pytest.raises(InputError, match=words):
            logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_of_another_head_or_that_is_not_a_number_is_refused(case):
    inputs = case.inputs()
    attached = attach(case)
    [found] = reweigh.measure(case.model, inputs, layers=[attached.layer])
    short = dataclasses.replace(found, values=found.values[:, :-1])
    with attached.request(evidence=[short]), pytest.raises(InputError, match="head"):
        logits(case, inputs)
    for values in (found.values * 1000, -found.values, found.values + 1):
        with (
            attached.request(evidence=[dataclasses.replace(found, values=values)]),
            pytest.raises(InputError, match="dmrr"),
        ):
            logits(case, inputs)
    broken = dataclasses.replace(found, values=found.values * float("nan"))
    with attached.request(evidence=[broken]), pytest.raises(NumericsError, match="finite"):
        logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_one_evidence_instead_of_a_list_is_refused(case):
    attached = attach(case)
    found = reweigh.measure(case.model, case.inputs(), layers=[attached.layer])
    with pytest.raises(InputError, match="list"), attached.request(evidence=found[0]):
        pass


@pytest.mark.parametrize("family", FAMILIES)
def test_describe_measures_a_picture_once(case, unread, tmp_path):
    shown = pictures(10, 200)
    plain = attach(case).describe(shown, "What?", max_new_tokens=6)
    cache = EvidenceCache(folder=tmp_path)
    assert attach(case, cache=cache).describe(shown, "What?", max_new_tokens=6) == plain
    assert cache.hits == 0
    unread()
    again = EvidenceCache(folder=tmp_path)
    attached = attach(case, cache=again)
    assert attached.describe(shown, "What?", max_new_tokens=6) == plain
    assert (again.hits, again.misses) == (2, 0)
    with pytest.raises(AssertionError, match="state"):
        attached.describe(shown[:1], "What?", max_new_tokens=6)  # alone it is rounded otherwise


def key_of(case, attached, pictures, prompts, template=None):
    inputs = build_inputs(case.model, case.processor, pictures, prompts, template=template)
    recall = Recall(attached.decoder.anatomy, case.processor, EvidenceCache())
    reader = attached.decoder.deployed.reader
    return recall._source(reader, reader.tokens), recall.keys(pictures, inputs)[0]


@pytest.mark.parametrize("family", ["llava"])
def test_the_key_changes_with_everything_evidence_depends_on(case):
    shown = pictures(10, 200)
    attached = attach(case)
    first = functools.partial(key_of, case, attached)
    found = [
        first(shown, ["a", "b"]),
        first(shown, ["a", "b b"]),  # the row is padded
        first(shown, ["a a", "b b"]),
        first(shown, ["a", "b"], "look <image> {prompt}"),
        first([shown[1], shown[1]], ["a", "b"]),
        first([shown[0], Image.new("RGB", (41, 40))], ["a", "b"]),
        first(shown[:1], ["a"]),
    ]
    anatomy = find_anatomy(case.model)
    weight = anatomy.blocks[0].self_attn.q_proj.weight.data
    before = weight[0, 0].item()
    weight[0, 0] += 1
    try:
        found.append(first(shown, ["a", "b"]))
    finally:
        weight[0, 0] = before  # taking 1 away again would leave another weight, and another key
    assert first(shown, ["a", "b"]) == found[0]
    case.model.config.vision_feature_layer, kept = -1, case.model.config.vision_feature_layer
    try:
        found.append(first(shown, ["a", "b"]))
    finally:
        case.model.config.vision_feature_layer = kept
    assert first(shown, ["a", "b"]) == found[0]
    other = dataclasses.replace(
        attached.table,
        tokens=attached.table.tokens[1:],
        references=attached.table.references[1:],
        counts=attached.table.counts[1:],
    )
    found.append(key_of(case, reweigh.attach(case.model, case.processor, table=other), shown, ["a", "b"]))
    attached.decoder.deployed.lens.chunk = 7
    found.append(first(shown, ["a", "b"]))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_question_of_the_same_length_finds_the_evidence(case, unread):
    """Where the image comes first and is read causally, what follows it changes no bit of its evidence."""
    shown, questions = pictures(10, 200), ["Is there a dog?", "Is there a cat?"]
    inputs = [build_inputs(case.model, case.processor, shown, [question, "What?"]) for question in questions]
    assert inputs[0]["input_ids"].shape == inputs[1]["input_ids"].shape
    assert not torch.equal(inputs[0]["input_ids"], inputs[1]["input_ids"])
    vectors = [reweigh.measure(case.model, one, layers=[2])[0].values for one in inputs]
    cache = EvidenceCache()
    attached = attach(case, cache=cache)
    attached.describe(shown, [questions[0], "What?"], max_new_tokens=3)
    plain = attach(case).describe(shown, [questions[1], "What?"], max_new_tokens=3)
    if case.family == "instructblip":  # its Q-Former reads the question
        assert not torch.equal(*vectors)
        assert attached.describe(shown, [questions[1], "What?"], max_new_tokens=3) == plain
        assert cache.hits == 1  # of the other row, whose question is the same
        return
    assert torch.equal(*vectors)
    unread()
    assert attached.describe(shown, [questions[1], "What?"], max_new_tokens=3) == plain


@pytest.mark.parametrize("family", ["llava"])
def test_a_family_that_may_look_ahead_is_asked_again(case, monkeypatch):
    shown, attached = pictures(10), attach(case)
    ask = functools.partial(key_of, case, attached, shown)
    assert ask(["Is there a dog?"]) == ask(["Is there a cat?"])
    monkeypatch.setattr("reweigh.families.anatomy.Anatomy.is_causal", False)
    assert ask(["Is there a dog?"]) != ask(["Is there a cat?"])


@pytest.mark.parametrize("family", FAMILIES)
def test_evidence_of_the_whole_vocabulary_serves_every_table(case, unread):
    shown, cache = pictures(10, 200), EvidenceCache()
    vocab = find_anatomy(case.model).vocab_size
    every = twin.table(vocab, share=1.1)
    assert len(every.tokens) == vocab
    plain = attach(case).describe(shown, "What?", max_new_tokens=6)
    reweigh.attach(case.model, case.processor, table=every, beta=0.0, cache=cache).describe(
        shown, "What?", max_new_tokens=1
    )
    unread()
    assert attach(case, cache=cache).describe(shown, "What?", max_new_tokens=6) == plain


@pytest.mark.parametrize("family", ["llava"])
def test_threads_that_share_an_attachment_keep_their_pictures_apart(case):
    shown = pictures(10, 90, 170, 250)
    plain = attach(case)
    expected = [plain.describe(one, "What?", max_new_tokens=6) for one in shown]
    vectors = [
        reweigh.measure(case.model, build_inputs(case.model, case.processor, [one], ["What?"]), layers=[2])[0]
        for one in shown
    ]
    assert len({one.values.numpy().tobytes() for one in vectors}) == len(shown)
    for _ in range(3):
        cache = EvidenceCache()
        attached = attach(case, cache=cache)
        ask = functools.partial(attached.describe, prompt="What?", max_new_tokens=6)
        with ThreadPoolExecutor(4) as pool:
            for _again in range(2):  # measured, then recalled
                assert list(pool.map(ask, shown)) == expected
        assert cache.hits == 4
        for one, vector in zip(shown, vectors, strict=True):
            inputs = build_inputs(case.model, case.processor, [one], ["What?"])
            reader = attached.decoder.deployed.reader
            kept = attached.recall.find(attached.recall.keys([one], inputs), reader)[0]
            assert torch.equal(kept.at(2), vector.of(2, reader.tokens))


@pytest.mark.parametrize("family", ["llava"])
def test_the_hash_of_what_reads_knows_image_settings(case):
    anatomy = find_anatomy(case.model)
    before = reading_hash(anatomy, case.processor)
    assert reading_hash(anatomy, case.processor) == before
    kept = case.processor.image_processor.image_mean
    case.processor.image_processor.image_mean = [0.1, 0.2, 0.3]
    try:
        assert reading_hash(anatomy, case.processor) != before
    finally:
        case.processor.image_processor.image_mean = kept


def test_what_was_kept_is_measured_again_after_a_setting_changed_in_place(checkpoint):
    own = twin.Case("llava", *load(checkpoint("llava")))
    cache, shown = EvidenceCache(), pictures(200)
    attached = attach(own, cache=cache)

    def found():
        before = cache.hits
        attached.describe(shown, "What?", max_new_tokens=2)
        return cache.hits > before

    assert [found(), found()] == [False, True]
    images, kept = own.processor.image_processor, own.processor.image_processor.image_mean
    images.image_mean = [0.1, 0.2, 0.3]
    assert [found(), found()] == [False, True]
    own.model.config.vision_feature_layer = -1
    assert [found(), found()] == [False, True]
    images.image_mean, own.model.config.vision_feature_layer = kept, -2
    assert found(), "what was kept of the model as it is again"


@pytest.mark.parametrize("family", ["llava"])
@pytest.mark.parametrize("factor", [1000.0, -1.0, 0.0])
def test_kept_evidence_that_cannot_be_is_measured_again(case, factor):
    """A vector under a right hash, but beyond (0, 1]."""
    cache = EvidenceCache()
    attached = attach(case, cache=cache)
    [picture] = pictures(20)
    own = attached.describe(picture, max_new_tokens=4)
    kept = cache.memory._held
    assert len(kept) == 1
    [(key, (values, size))] = kept.items()
    kept[key] = (values * factor, size)
    assert attached.describe(picture, max_new_tokens=4) == own
    assert ((kept[key][0] > 0) & (kept[key][0] <= 1)).all()
