"""Recalled evidence is used without reading a state, and is never mistaken for another's."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch
from PIL import Image

import reweigh
import twin
from checkpoints import FAMILIES, VOCABULARY, load
from reweigh.engines.reader import Reader
from reweigh.families.anatomy import find_anatomy
from reweigh.families.prompts import build_inputs
from reweigh.memory import Memory
from reweigh.serve.recall import Recall

pytestmark = pytest.mark.numerics


@pytest.fixture
def case(family, checkpoint):
    return twin.case(checkpoint(family))


def attach(case):
    return reweigh.attach(case.model, case.processor, table=twin.table(VOCABULARY), beta=4.0)


def pictures(*shades):
    return [Image.new("RGB", (40, 40), (shade, 90, 255 - shade)) for shade in shades]


def key_of(case, attached, pictures, prompts, template=None):
    inputs = build_inputs(case.model, case.processor, pictures, prompts, template=template)
    recall = Recall(attached.decoder.anatomy, case.processor, Memory())
    reader = attached.decoder.reader
    return recall._source(reader, reader.tokens), recall.keys(pictures, inputs)[0]


@pytest.mark.parametrize("family", ["llava"])
def test_the_key_changes_with_everything_evidence_depends_on(case):
    shown = pictures(10, 200)
    attached = attach(case)
    first = functools.partial(key_of, case, attached)
    found = [
        first(shown, ["a", "b"]),
        first(shown, ["a", "b b"]),  # the row is padded
        first(shown, ["a", "b"], "look <image> {prompt}"),
        first([shown[1], shown[1]], ["a", "b"]),
    ]
    assert first(shown, ["a a", "b b"]) == found[0], "what follows the picture changes nothing"
    assert first(shown[:1], ["a"]) == found[0], "nor do other rows"
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
    attached.decoder.reader.lens.chunk = 7
    found.append(first(shown, ["a", "b"]))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("family", ["llava"])
def test_a_family_that_may_look_ahead_is_asked_again(case, monkeypatch):
    shown, attached = pictures(10), attach(case)
    ask = functools.partial(key_of, case, attached, shown)
    assert ask(["Is there a dog?"]) == ask(["Is there a cat?"])
    monkeypatch.setattr("reweigh.families.anatomy.Anatomy.is_causal", False)
    assert ask(["Is there a dog?"]) != ask(["Is there a cat?"])


def ask(case, attached, recall, shown):
    """Describe pictures with the evidence that is recalled, keep what was measured, and say which rows were known."""
    inputs = build_inputs(case.model, case.processor, shown, ["What?"] * len(shown))
    keys, reader = recall.keys(shown, inputs), attached.decoder.reader
    known = recall.find(keys, reader)
    with attached.using(evidence=known) as request:
        case.model.generate(**inputs, max_new_tokens=2, do_sample=False)
    recall.keep(keys, known, request.evidence, reader)
    for one, own in zip(known, request.evidence, strict=True):
        assert one is None or torch.equal(one.values, own.values)
    return [one is not None for one in known]


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_evidence_is_found_for_every_table_it_serves(case, monkeypatch):
    shown = pictures(10, 200)
    vocab = find_anatomy(case.model).vocab_size
    every = twin.table(vocab, share=1.1)
    assert len(every.tokens) == vocab
    whole = reweigh.attach(case.model, case.processor, table=every, beta=0.0)
    recall = Recall(whole.decoder.anatomy, case.processor, Memory())
    assert ask(case, whole, recall, shown) == [False, False]
    monkeypatch.delattr(Reader, "read")  # from here on nothing can be read through the lens
    assert ask(case, whole, recall, shown) == [True, True]
    assert ask(case, attach(case), recall, shown) == [True, True]


def test_what_was_kept_is_measured_again_after_a_setting_changed_in_place(checkpoint):
    own = twin.Case("llava", *load(checkpoint("llava")))
    attached, shown = attach(own), pictures(200)
    recall = Recall(attached.decoder.anatomy, own.processor, Memory())

    def twice():
        return [ask(own, attached, recall, shown)[0] for _ in range(2)]

    assert twice() == [False, True]
    images, kept = own.processor.image_processor, own.processor.image_processor.image_mean
    images.image_mean = [0.1, 0.2, 0.3]
    attached = attach(own)
    assert twice() == [False, True]
    images.image_mean = kept
    attached = attach(own)
    assert twice() == [True, True], "what was kept of the model as it is again"
