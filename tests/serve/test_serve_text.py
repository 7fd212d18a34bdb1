"""Text that grows token by token is, in the end, the text decoded at once, cut before a stop string."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.families.processor import load_processor
from reweigh.serve.row import GrowingText
from reweigh.world import path


@pytest.fixture(scope="module")
def tokenizer():
    return load_processor(path()).tokenizer


def grown(tokenizer, ids, stops):
    """What is sent in all, the pieces, and the places of the tokens."""
    growing = GrowingText(tokenizer, stops)
    pieces, places = [], []
    for token in ids:
        places.append(growing.push(token))
        pieces.append(growing.ready())
        if growing.stopped:
            break
    return growing, [*pieces, growing.finish()], places


def by_hand(tokenizer, ids, stops):
    """The text of the shortest run of tokens that holds a stop string, cut before it."""
    for count in range(len(ids) + 1):
        text = tokenizer.decode(ids[:count], skip_special_tokens=True)
        text = text.lstrip() if count < len(ids) else text.strip()
        if count < len(ids) and text.endswith("\ufffd"):
            continue
        found = [text.find(stop) for stop in stops if stop in text]
        if found:
            return text[: min(found)].rstrip()
    return text.strip()


@settings(max_examples=150)
@given(
    ids=st.lists(st.integers(0, 1279), max_size=30),
    stops=st.lists(st.sampled_from([" ", "a", "th", "There is", ".", "e \n", "é"]), max_size=3),
)
def test_any_tokens_give_the_text_decoded_at_once(tokenizer, ids, stops):
    growing, pieces, _ = grown(tokenizer, ids, stops)
    assert "".join(pieces) == growing.text == by_hand(tokenizer, ids, stops)


@settings(max_examples=60)
@given(text=st.text(alphabet="ab é日🎈.", min_size=1, max_size=20))
def test_characters_of_several_tokens_come_whole(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    _, pieces, places = grown(tokenizer, ids, [])
    assert "".join(pieces) == text.strip()
    assert not any("\ufffd" in piece for piece in pieces)
    assert [start for start, _ in places[1:]] == [end for _, end in places[:-1]]


def test_what_may_begin_a_stop_string_is_held_back(tokenizer):
    ids = tokenizer(" There is also a dog.", add_special_tokens=False)["input_ids"]
    growing, pieces, _ = grown(tokenizer, ids, ["also a cat"])
    before = "".join(pieces[: len(ids) - 2])
    assert before == "There is"
    assert growing.text == "There is also a dog."
    assert not growing.stopped
