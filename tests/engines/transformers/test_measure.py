"""Model and table together: the right pair is accepted, any other refused, and force has its limits."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import reweigh
import stand_ins
import twin
from checkpoints import VOCABULARY, picture
from reweigh.attached import attach
from reweigh.engines.pairing import pair
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


@pytest.fixture(scope="module")
def table(llava):
    """A table that says it was made with this model."""
    identity = identify(find_anatomy(llava.model), llava.processor)
    rule = {"mass": 0.9, "least": 2, "most": 50}
    about = {"dtype": "float32", "lens": "native", "chunk": 5, "candidates": rule}
    return twin.table(VOCABULARY, identity=identity.to_json(), **about)


def test_the_right_pair_with_the_tables_own_lens(llava, table):
    anatomy = find_anatomy(llava.model)
    found, lens = pair(anatomy, llava.processor, table, layer=2)
    assert found is table
    assert (lens.chunk, lens.upcast) == (5, False)
    upcast = replace(table, about={**table.about, "lens": "float32"})
    assert pair(anatomy, llava.processor, upcast, layer=-2)[1].upcast


def changed(table, **identity):
    made = {**table.about, "identity": {**table.about["identity"], **identity}}
    return replace(table, about=made)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"weights": {"lm_head.weight": "float32 1 AAAA"}}, "weight"),
        ({"weights": {}}, "weights"),
        ({"tokenizer": "0" * 64}, "tokenizer"),
        ({"blocks": 5}, "blocks"),
        ({"adapters": {"mine": []}}, "adapters"),
        ({"config": {"vision_feature_layer": -1}}, "vision_feature_layer"),
    ],
)
def test_another_model_is_refused_and_can_be_forced(llava, table, change, word):
    other = changed(table, **change)
    with pytest.raises(MismatchError, match=word):
        attach(llava.model, llava.processor, table=other)
    assert attach(llava.model, llava.processor, table=other, force=True).table is other


def test_another_dtype_is_refused_and_can_be_forced(llava, table):
    other = replace(table, about={**table.about, "dtype": "bfloat16"})
    with pytest.raises(MismatchError, match="bfloat16"):
        attach(llava.model, llava.processor, table=other)
    attach(llava.model, llava.processor, table=other, force=True)


@pytest.mark.parametrize("force", [False, True])
def test_layer_vocabulary_and_impossible_numbers_cannot_be_forced(llava, table, force):
    options = {"force": force}
    with pytest.raises(MismatchError, match="layer 2"):
        attach(llava.model, llava.processor, table=table, layer=1, **options)
    with pytest.raises(ArtifactError, match="layer 4"):
        attach(llava.model, llava.processor, table=replace(table, layer=4), **options)
    with pytest.raises(ArtifactError, match="b0"):
        attach(llava.model, llava.processor, table=replace(table, b0=0.0), **options)
    tokens = np.append(table.tokens[:-1], VOCABULARY)
    with pytest.raises(ArtifactError, match=f"token {VOCABULARY}"):
        attach(llava.model, llava.processor, table=replace(table, tokens=tokens), **options)


@pytest.mark.parametrize("beta", [-1, float("nan")])
def test_beta_is_checked_first(llava, table, beta):
    with pytest.raises(InputError, match="beta"):
        attach(llava.model, llava.processor, table=table, beta=beta)


def test_the_table_of_another_family_is_refused_with_both_named(checkpoint, table):
    other = twin.case(checkpoint("llava_next"))
    with pytest.raises(MismatchError, match="architecture"):
        attach(other.model, other.processor, table=table)


def test_a_table_without_registered_tokens_changes_nothing(llava, table):
    none = replace(table, tokens=np.zeros(0, np.int64), references=np.zeros(0), counts=np.zeros(0, np.int64))
    rw = attach(llava.model, llava.processor, table=none, beta=9.0)
    image = picture(3)
    base = reweigh.decoder("base", llava.model, llava.processor)
    assert rw.describe(image, max_new_tokens=5) == base.describe(image, max_new_tokens=5)


def test_a_table_of_an_incomplete_identity_is_refused_and_can_be_forced(llava, table):
    partial = {"model_id": table.about["identity"]["model_id"]}
    older = replace(table, about={**table.about, "identity": partial})
    with pytest.raises(MismatchError, match="verified"):
        attach(llava.model, llava.processor, table=older)
    attach(llava.model, llava.processor, table=older, force=True)


def test_a_table_of_no_model_is_refused(llava, table):
    empty = replace(table, about={**table.about, "identity": {}})
    with pytest.raises(ArtifactError, match="identity"):
        attach(llava.model, llava.processor, table=empty, force=True)


@pytest.mark.parametrize(
    "part", ["model.vision_tower", "model.multi_modal_projector", "model.language_model.layers.1"]
)
def test_noise_in_any_part_is_another_model(llava, table, part):
    model = copy.deepcopy(llava.model)
    with torch.no_grad():
        for parameter in model.get_submodule(part).parameters():
            parameter += 1e-3 * torch.randn_like(parameter)
    with pytest.raises(MismatchError, match="of 784 sampled weights differ"):
        attach(model, llava.processor, table=table)


def test_a_low_rank_fine_tune_is_another_model(llava, table):
    model = copy.deepcopy(llava.model)
    layers = stand_ins.inject(model)
    with pytest.raises(MismatchError, match="adapters: table none, model default"):
        attach(model, llava.processor, table=table)
    for layer in layers:
        layer._disable_adapters = True
    attach(model, llava.processor, table=table)
    for layer in layers:
        layer._disable_adapters = False
        layer.merge()
    with pytest.raises(MismatchError, match="of 784 sampled weights differ"):
        attach(model, llava.processor, table=table)


def test_other_pixels_are_another_model(llava, table):
    processor = copy.deepcopy(llava.processor)
    processor.image_processor.image_mean = [0.5, 0.5, 0.5]
    with pytest.raises(MismatchError, match="image_mean"):
        attach(llava.model, processor, table=table)
