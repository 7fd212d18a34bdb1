"""Tokens as the words that they begin or continue."""

from __future__ import annotations

import pytest
import torch

from reweigh.engines.transformers.observe import whole_words, word_at

PIECES = ["<s>", " f", "ire", " truck", ".", " a"]


class Tokenizer:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(PIECES[i] for i in ids if not (skip_special_tokens and i == 0)).lstrip()


class Speaker:
    """Goes on with "ire" after "f", and with a full stop after anything else."""

    def __init__(self):
        self.asked = []

    def generate(self, input_ids, max_new_tokens, **_):
        self.asked.append(input_ids[0].tolist())
        more = [2, 3] if input_ids[0, -1] == 1 else [4, 5]
        return torch.cat([input_ids, torch.tensor([more])], dim=1)


def test_a_piece_becomes_the_word_the_model_would_write():
    speaker = Speaker()
    inputs = {"input_ids": torch.tensor([[0, 0]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
    found = whole_words(speaker, Tokenizer(), inputs, [5], [1, 3, 4])
    assert found == {1: "fire", 3: "truck"}, "a full stop is no word"
    assert speaker.asked == [[0, 0, 5, 1], [0, 0, 5, 3]]
    assert whole_words(speaker, Tokenizer(), inputs, [5, 1], [2]) == {2: "fire"}, "from inside the word"


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("a fire hydrant", 1, "fire"),
        ("fire", 2, "fire"),
        ("", 0, ""),
        ("a .", 1, ""),
        ("naïve idea", 0, "naïve"),
    ],
)
def test_the_word_at_a_place(text, place, word):
    assert word_at(text, place) == word
