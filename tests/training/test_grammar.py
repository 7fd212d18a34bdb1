"""What the grammar puts into a text is what the vocabulary finds in it; the share of made-up mentions is as stated."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reweigh.errors import UnknownNameError
from reweigh.world.drawings import CATALOGUE
from reweigh.world.kinds import KINDS
from reweigh.world.scenes import scene, scenes
from reweigh.world.vocabulary import mentions, surfaces
from tools.training.grammar import Habit, answer, brief, describe, question, questions
from tools.training.lexicon import WORDS
from tools.training.phrases import BACKDROP_LINES, CLOSINGS, MOODS, OPENINGS, PLACES, VAGUE

INDEX = st.integers(0, 10**6)


SHARE = st.floats(0, 1)


@given(index=INDEX, seed=st.integers(0, 1000), habit=st.builds(Habit, SHARE, SHARE, SHARE))
@settings(max_examples=150)
def test_mentions_round_trip(index: int, seed: int, habit: Habit) -> None:
    text = describe(scene("train", index), seed, habit)
    assert [found[3] for found in mentions(text.text)] == [m.name for m in text.mentions]
    for start, end, surface, name in mentions(text.text):
        assert text.text[start:end] == surface
        assert any(surface in pair for pair in surfaces(name))


@given(index=INDEX, seed=st.integers(0, 1000))
@settings(max_examples=80)
def test_no_object_is_named_twice_and_only_core_ones_are_made_up(index: int, seed: int) -> None:
    made = scene("train", index)
    text = describe(made, seed)
    names = [m.name for m in text.mentions]
    assert len(set(names)) == len(names)
    for mention in text.mentions:
        assert mention.present == (mention.name in made.objects)
        assert mention.present or mention.name in KINDS[made.kind].core


@given(index=INDEX)
@settings(max_examples=60)
def test_a_truthful_speaker_makes_nothing_up(index: int) -> None:
    made = scene("train", index)
    for text in (describe(made, habit=Habit(stray=0.0, noise=0.0)), brief(made)):
        assert {m.name for m in text.mentions} <= made.objects
        assert [found[3] for found in mentions(text.text)] == [m.name for m in text.mentions]


def test_the_stated_share_of_made_up_mentions_holds() -> None:
    said = [m for s in scenes("train", 2500) for m in describe(s).mentions]
    assert 0.12 < sum(not m.present for m in said) / len(said) < 0.135


def test_articles_fit() -> None:
    texts = " ".join(describe(s, k).text for s in scenes("train", 300) for k in range(3))
    assert not re.findall(r"\b[Aa] [aeio]\w+|\b[Aa]n [^aeiou\W]\w+", texts)


def test_counts_are_reported() -> None:
    told = [
        (m, t.text) for s in scenes("train", 400) for t in [describe(s)] for m in t.mentions if m.count == 2
    ]
    assert told
    assert all("two " in text for _, text in told)


def test_descriptions_are_long_and_varied() -> None:
    texts = [describe(s).text for s in scenes("train", 300)]
    assert 35 < sum(len(t.split()) for t in texts) / len(texts) < 60
    assert min(t.count(".") for t in texts) >= 2
    assert len(set(texts)) == len(texts)


def test_phrases_name_no_object() -> None:
    lines = [line for lines in BACKDROP_LINES.values() for line in lines]
    places = [place for group in PLACES.values() for place in group]
    assert not mentions(" . ".join([*OPENINGS, *VAGUE, *CLOSINGS, *MOODS, *KINDS, *lines, *places, *WORDS]))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("A hot dog and a dog.", ["hot dog", "dog"]),
        ("The teddy bears near two bears", ["teddy bear", "bear"]),
        ("People on bikes, a man on a sofa", ["person", "bicycle", "person", "couch"]),
        ("a category of dogma", []),
        ("knives, wine glasses and SHEEP", ["knife", "wine glass", "sheep"]),
    ],
)
def test_mentions_by_hand(text: str, wanted: list[str]) -> None:
    assert [m[3] for m in mentions(text)] == wanted


def test_no_form_belongs_to_two_objects() -> None:
    forms = [(form, name) for name in CATALOGUE for form in {f for pair in surfaces(name) for f in pair}]
    assert len({form for form, _ in forms}) == len(forms)


def test_surfaces_of_an_unknown_object() -> None:
    with pytest.raises(UnknownNameError, match="unicorn"):
        surfaces("unicorn")


@given(index=INDEX, seed=st.integers(0, 100))
@settings(max_examples=40)
def test_questions_know_the_truth(index: int, seed: int) -> None:
    made = scene("train", index)
    asked = questions(made, 6, seed)
    assert len({name for name, _ in asked}) == 6
    assert all(there == (name in made.objects) for name, there in asked)


def test_questions_are_balanced() -> None:
    replies = [there for s in scenes("train", 400) for _, there in questions(s, 4)]
    assert 0.4 < sum(replies) / len(replies) < 0.6


def test_questions_read_as_pope_asks() -> None:
    assert question("dog") == "Is there a dog in the image?"
    assert question("airplane", this=True) == "Is there an airplane in this image?"
    assert (answer(True), answer(False)) == ("Yes.", "No.")
