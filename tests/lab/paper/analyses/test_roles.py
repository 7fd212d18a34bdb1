"""Roles of pieces: the order of the rules, and the embedded tokenizer's own pieces."""

from __future__ import annotations

import pytest

from reweigh import world
from reweigh.lab.paper.analyses.allocation import FUNCTION_WORDS, piece_roles, piece_text, role_of


@pytest.mark.parametrize(
    ("text", "starts", "special", "role"),
    [
        ("the", True, False, "structural"),
        ("The", True, False, "structural"),
        ("dog", True, False, "lexical"),
        ("the", False, False, "special"),  # inside a word: "la|the"
        (".", False, False, "punctuation"),
        (",", True, False, "punctuation"),
        ("\n", False, False, "punctuation"),
        ("", True, False, "punctuation"),
        ("</s>", True, True, "special"),
        ("\ufffd", True, False, "special"),
        ("2", True, False, "lexical"),
        ("2", False, False, "special"),
    ],
)
def test_roles(text: str, starts: bool, special: bool, role: str) -> None:
    assert role_of(text, starts_word=starts, special=special) == role


def test_the_list_is_closed_lower_case_and_of_single_words() -> None:
    assert all(word == word.lower() and word.isalpha() for word in FUNCTION_WORDS)
    assert {"the", "with", "and", "is", "there"} <= FUNCTION_WORDS
    assert not {"dog", "table", "red", "two"} & FUNCTION_WORDS


def test_word_starts_follow_the_mark_of_the_tokenizer() -> None:
    assert piece_roles(["<s>", "▁the", "the", "▁dog", ".", "<0x0A>", "<0xE2>", None], {0}) == [
        *("special", "structural", "special", "lexical", "punctuation", "punctuation", "special"),
        "special",  # a row of the head that no piece belongs to
    ]
    assert piece_roles(["Ġthe", "ory", "Ċ", "Ġ", "."], ()) == [
        *("structural", "special", "punctuation", "punctuation", "punctuation")
    ]
    assert piece_roles(["the", "##ory", "dog"], ()) == ["structural", "special", "lexical"]
    assert piece_roles(["the", "dog"], ()) == ["structural", "lexical"]


def test_the_embedded_tokenizer() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(world.path())
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    roles = piece_roles(pieces, set(tokenizer.all_special_ids))
    text = tokenizer(" a dog near the table.", add_special_tokens=False)["input_ids"]
    assert [roles[token] for token in text][:2] == ["structural", "lexical"]
    assert roles[text[-1]] == "punctuation"
    assert roles[tokenizer.eos_token_id] == "special"
    for token in range(300, 600):  # our reading of bytes is the tokenizer's own
        assert piece_text(pieces[token], by_bytes=True) == tokenizer.decode([token])
