"""Who a model is: told by content, not by name, and the same in the types it may be loaded in."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from transformers import AutoModelForImageTextToText

import twin
from checkpoints import VOCABULARY
from reweigh.families.anatomy import find_anatomy
from reweigh.families.identity import identify, tokenizer_hash


@pytest.fixture(scope="module")
def llava(checkpoint):
    return twin.case(checkpoint("llava"))


def of(model, processor=None):
    return identify(find_anatomy(model), processor)


def test_it_says_what_was_loaded(llava, checkpoint):
    found = of(llava.model, llava.processor)
    assert found.model_id == str(checkpoint("llava"))
    assert (found.architecture, found.blocks, found.vocab_size) == (
        "LlavaForConditionalGeneration",
        4,
        VOCABULARY,
    )
    assert len(found.weights) == len(found.tokenizer) == 64
    assert json.loads(json.dumps(found.to_json())) == asdict(found)


def test_a_renamed_copy_is_the_same_model(llava, tmp_path):
    llava.model.save_pretrained(tmp_path / "copy")
    copy = AutoModelForImageTextToText.from_pretrained(tmp_path / "copy")
    assert of(copy).weights == of(llava.model).weights
    assert of(copy).model_id != of(llava.model).model_id


def test_bfloat16_keeps_the_identity(checkpoint, llava):
    half = AutoModelForImageTextToText.from_pretrained(checkpoint("llava"), dtype=torch.bfloat16)
    assert of(half).weights == of(llava.model).weights


def test_a_sixteen_bit_checkpoint_keeps_its_identity_in_every_type(checkpoint, tmp_path):
    AutoModelForImageTextToText.from_pretrained(checkpoint("llava"), dtype=torch.float16).save_pretrained(
        tmp_path
    )
    found = {
        of(AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=dtype)).weights
        for dtype in (torch.float16, torch.float32, torch.bfloat16)
    }
    assert len(found) == 1


@pytest.mark.parametrize("part", ["norm", "head"])
def test_other_weights_are_another_model(checkpoint, llava, part):
    model = AutoModelForImageTextToText.from_pretrained(checkpoint("llava"))
    anatomy = find_anatomy(model)
    with torch.no_grad():
        (anatomy.norm if part == "norm" else anatomy.head).weight.mul_(1.05)
    assert of(model).weights != of(llava.model).weights


def test_every_family_has_its_own(checkpoint, llava):
    other = twin.case(checkpoint("llava_next"))
    assert of(other.model).weights != of(llava.model).weights


def test_the_tokenizer_is_its_vocabulary(llava):
    known = tokenizer_hash(llava.processor)
    assert tokenizer_hash(llava.processor.tokenizer) == known

    class Fake:
        def __init__(self, vocabulary):
            self.vocabulary = vocabulary

        def get_vocab(self):
            return self.vocabulary

    vocabulary = llava.processor.tokenizer.get_vocab()
    assert tokenizer_hash(Fake(dict(reversed(vocabulary.items())))) == known
    one, two = list(vocabulary)[:2]
    swapped = {**vocabulary, one: vocabulary[two], two: vocabulary[one]}
    assert tokenizer_hash(Fake(swapped)) != known
    assert tokenizer_hash(None) == tokenizer_hash(object()) == ""
