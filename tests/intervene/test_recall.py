"""Recalled evidence gives the same text without reading a state, and is never mistaken for another's."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY
from reweigh.errors import InputError, UnsupportedError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import reading_hash
from reweigh.intervene.recall import Recall
from reweigh.measure.cache import EvidenceCache
from reweigh.measure.evidence import Gatherer, Known, _merged
from reweigh.measure.ranks import RankSum

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

        monkeypatch.setattr(Gatherer, "_read", refuse)

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
def test_given_evidence_decodes_bit_for_bit_like_measured_evidence(case, unread, beams):
    inputs = case.inputs()
    attached = attach(case)
    every = reweigh.measure(case.model, inputs, layers=[attached.layer])
    with attached:
        online = logits(case, inputs, num_beams=beams)
    unread()
    with attached, attached.using(every):
        assert torch.equal(logits(case, inputs, num_beams=beams), online)
    with attached, pytest.raises(AssertionError, match="a state was read"):
        logits(case, inputs)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_of_another_picture_is_taken_as_given(case):
    one, other = case.inputs(), case.inputs()
    other["pixel_values"] = other["pixel_values"].flip(-1) * -0.7
    attached = attach(case)
    with attached:
        own = logits(case, one)
    wrong = reweigh.measure(case.model, other, layers=[attached.layer])
    with attached, attached.using(wrong):
        assert not torch.equal(logits(case, one), own)
    with attached:
        assert torch.equal(logits(case, one), own)


@pytest.mark.parametrize("family", ["llava"])
def test_evidence_that_does_not_fit_is_refused(case):
    inputs = case.inputs()
    attached = attach(case)
    tokens = attached.table.tokens.tolist()
    with attached, attached.using([]), pytest.raises(InputError, match="row 0 holds an image"):
        logits(case, inputs)
    for tokens_of, layer, words in ((tokens[:-1], attached.layer, "other tokens"), (None, 0, "layer 2")):
        given = reweigh.measure(case.model, inputs, layers=[layer], tokens=tokens_of)
        with attached, attached.using(given), pytest.raises(InputError, match=words):
            logits(case, inputs)


def test_given_evidence_cannot_be_joined_with_measured():
    with pytest.raises(UnsupportedError, match="further image"):
        _merged([Known(torch.zeros(3)), RankSum(3)])


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
    with pytest.raises(AssertionError, match="a state was read"):
        attached.describe(shown[:1], "What?", max_new_tokens=6)  # alone it is rounded otherwise


@pytest.mark.parametrize("family", ["llava"])
def test_the_key_changes_with_everything_evidence_depends_on(case):
    shown = pictures(10, 200)
    attached = attach(case)

    def first(pictures=shown, prompts=("a", "b"), template=None):
        return Recall(attached, EvidenceCache()).keys(pictures, list(prompts), template)[0]

    found = [
        first(),
        first(prompts=("c", "b")),
        first(prompts=("a", "c")),
        first(template="{prompt}"),
        first([shown[1], shown[1]]),
        first([shown[0], Image.new("RGB", (41, 40))]),
        first([shown[0]], ["a"]),
    ]
    weight = find_anatomy(case.model).blocks[0].self_attn.q_proj.weight
    with torch.no_grad():
        weight[0, 0] += 1
    try:
        found.append(first())
    finally:
        with torch.no_grad():
            weight[0, 0] -= 1
    attached.decoder.lens.chunk = 7
    found.append(first())
    assert len(set(found)) == len(found)


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
