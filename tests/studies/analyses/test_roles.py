"""Roles of pieces: the order of the rules, and the embedded tokenizer's own pieces."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from reweigh import world
from reweigh.studies.analyses.roles import FUNCTION_WORDS, role_of, token_roles


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


class Pieces:
    """A tokenizer of given pieces, the first of which is a control token."""

    def __init__(self, *pieces: str) -> None:
        self.pieces = pieces
        self.all_special_ids = [0]
        self.added_tokens_decoder = {1: SimpleNamespace(special=False)}

    def __len__(self) -> int:
        return len(self.pieces)

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [self.pieces[i] for i in ids]

    def decode(self, ids: list[int]) -> str:
        return self.pieces[ids[0]].replace("▁", " ")


def test_word_starts_follow_the_mark_of_the_tokenizer() -> None:
    assert token_roles(Pieces("<s>", "▁the", "the", "▁dog", "."), 6) == [
        *("special", "structural", "special", "lexical", "punctuation"),
        "special",  # a row of the head that no piece belongs to
    ]
    assert token_roles(Pieces("<s>", "the", "##ory", "dog"), 4) == [
        "special",
        "structural",
        "special",
        "lexical",
    ]
    assert token_roles(Pieces("<s>", "the", "dog"), 3) == ["special", "structural", "lexical"]


def test_the_embedded_tokenizer() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(world.path())
    roles = token_roles(tokenizer, len(tokenizer))
    text = tokenizer(" a dog near the table.", add_special_tokens=False)["input_ids"]
    assert [roles[token] for token in text][:2] == ["structural", "lexical"]
    assert roles[text[-1]] == "punctuation"
    assert roles[tokenizer.eos_token_id] == "special"
