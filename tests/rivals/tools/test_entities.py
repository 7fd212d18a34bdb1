"""Lists of words, and words that are the same but for a final "s"."""

from __future__ import annotations

import pytest

from reweigh.errors import InputError
from reweigh.rivals.halc.grounding import singular
from reweigh.rivals.halc.walk import bare, entity_test, may_be_entity
from reweigh.rivals.tools.options import word_list


@pytest.mark.parametrize("word", ["glass", "grass", "bus", "dogs", "dog", "Glass"])
def test_a_listed_word_is_found_as_halc_asks_for_it(word):
    test = entity_test([word])
    assert test(word)
    assert test(bare(word))
    assert singular(bare(word)) == singular(word)


def test_words_come_from_lists_iterators_and_files(tmp_path):
    assert word_list("erase", (word for word in ("dog", " cat "))) == ("dog", "cat")
    path = tmp_path / "words.txt"
    path.write_text("dog\n\ncat\n", encoding="utf-8-sig")
    assert word_list("erase", path) == ("dog", "cat")


@pytest.mark.parametrize("given", [5, ["dog", 5], ["dog", " "]])
def test_what_is_not_a_list_of_words_is_refused(given):
    with pytest.raises(InputError, match="words"):
        word_list("erase", given)


def test_function_words_are_no_entities():
    words = ["The", "dog", "of", "12", "tvs", "is", "on", "it"]
    assert [word for word in words if may_be_entity(word)] == ["dog", "tvs"]
