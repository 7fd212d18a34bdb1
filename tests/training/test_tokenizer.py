"""The tokenizer gives back what it is given, is trained the same every time, and splits rarer words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.world import path
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import scene, scenes
from tools.training.grammar import describe
from tools.training.lexicon import QUIET_WORDS
from tools.training.tokenizer import processor, train_tokenizer


@pytest.fixture(scope="module")
def shipped() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path())


@given(index=st.integers(0, 10**6))
@settings(max_examples=40)
def test_descriptions_round_trip(shipped: Any, index: int) -> None:
    text = describe(scene("train", index)).text
    assert shipped.decode(shipped(text, add_special_tokens=False).input_ids) == text


@given(text=st.text(max_size=60))
@settings(max_examples=60)
def test_any_text_round_trips(shipped: Any, text: str) -> None:
    if not any(token in text for token in shipped.all_special_tokens):
        assert shipped.decode(shipped(text, add_special_tokens=False).input_ids) == text


def test_the_vocabulary_is_large_enough_and_some_names_are_several_pieces(shipped: Any) -> None:
    pieces = {name: shipped.tokenize(f" {name}") for name in CATALOGUE}
    assert len(shipped) >= 1000
    assert len(pieces["pizza"]) > 1
    assert len(pieces["dog"]) == 1
    assert len({tuple(p[:1]) for p in pieces.values()}) == len(CATALOGUE)


def test_quiet_words_are_one_piece_and_unused(shipped: Any) -> None:
    assert all(len(shipped.tokenize(word)) == 1 for word in QUIET_WORDS)
    said = {word for s in scenes("train", 300) for word in describe(s).text.split()}
    assert not said & {word.strip() for word in QUIET_WORDS}


@pytest.mark.slow
def test_the_recipe_makes_the_shipped_tokenizer(shipped: Any) -> None:
    assert train_tokenizer().get_vocab() == shipped.get_vocab()


def test_training_is_repeatable() -> None:
    assert train_tokenizer(40, 500).get_vocab() == train_tokenizer(40, 500).get_vocab()


def test_the_processor_puts_sixty_four_tokens_for_an_image() -> None:
    made = processor(train_tokenizer(40, 500))
    inputs = made(
        images=scene("tuning", 0).image(), text="<s>USER: <image>\nHi ASSISTANT:", return_tensors="pt"
    )
    assert int((inputs["input_ids"] == 3).sum()) == 64
    assert inputs["pixel_values"].shape == (1, 3, 112, 112)
    assert inputs["input_ids"][0, 0] == 1
    assert inputs["input_ids"][0, 1] != 1
