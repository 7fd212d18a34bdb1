"""From characters to the steps that said them."""

from __future__ import annotations

from reweigh.lab.paper.corpus.image import onset
from reweigh.text import token_ends

PIECES = [" A", " hot", " d", "og", " and", " caf", "\ufffd", "é", ".", "</s>"]


def decode(tokens):
    """A byte-level tokenizer's way: an unfinished character shows as a mark until its last piece."""
    text = "".join(PIECES[token] for token in tokens if token != 9)
    return text.replace("\ufffdé", "é")


def test_a_character_belongs_to_the_token_that_says_it():
    tokens = list(range(10))
    text = decode(tokens).strip()
    assert text == "A hot dog and café."
    ends = token_ends(tokens, decode)
    said = {
        word: onset(ends, text.index(word)) for word in ("A", "hot", "dog", "og", "and", "café", "é", ".")
    }
    assert said == {"A": 0, "hot": 1, "dog": 2, "og": 3, "and": 4, "café": 5, "é": 7, ".": 8}


def test_the_blank_before_a_word_belongs_to_its_token():
    tokens = list(range(10))
    ends = token_ends(tokens, decode)
    assert onset(ends, 1) == 1  # the blank of " hot"
    assert onset(ends, 999) == 9
