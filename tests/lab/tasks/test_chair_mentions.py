"""Every step and every quirk of caption reading, by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.tasks.chair.mentions import PAIRS, MentionFinder, Vocabulary

# Quirk, caption, objects in the wordnet variant, objects in the pattern variant.
QUIRKS: list[tuple[str, str, list[str], list[str]]] = [
    ("multiplicity", "A dog and a dog.", ["dog", "dog"], ["dog", "dog"]),
    ("category-of-synonym", "A stool by the table", ["chair", "dining table"], ["chair", "dining table"]),
    ("lower-cased", "DOGS chase the Cat", ["dog", "cat"], ["dog", "cat"]),
    ("possessive", "the man's dog isn't big", ["person", "dog"], ["person", "dog"]),
    ("hyphen-and-slash", "a dog-shaped cake, man/woman", ["cake"], ["cake"]),
    ("glued-period", "I see a person.A dog runs", ["dog"], ["dog"]),
    ("curly-quotes", "the “dog” sits", ["dog"], ["dog"]),
    ("pair-rule", "a wine glass and a stop sign", ["wine glass", "stop sign"], ["wine glass", "stop sign"]),
    ("greedy-from-the-left", "a hot dog bow tie", ["hot dog", "tie"], ["hot dog", "tie"]),
    ("young-and-grown", "a baby bird, an adult bear", ["bird", "bear"], ["bird", "bear"]),
    ("pair-vanishes", "a baby animal and an adult cub", [], []),
    ("passenger-vehicle", "a passenger jet, a passenger train", ["airplane", "train"], ["airplane", "train"]),
    ("swallowed-words", "the train track at the home plate", [], []),
    ("toilet-seat-pair", "a toilet seat", ["toilet"], ["toilet"]),
    ("toilet-drops-seats", "a seat near the toilet and a chair", ["toilet", "chair"], ["toilet", "chair"]),
    ("toilet-drops-seated", "a dog seated by the toilet", ["dog", "toilet"], ["dog", "toilet"]),
    ("no-rule-for-dining-table", "a dining table", ["dining table"], ["dining table"]),
    ("sports-ball-never-fires", "a sports ball", ["sports ball"], ["sports ball"]),
    ("dead-double-blank", "a motor bike and a cheesecake", [], []),
    ("dead-capital", "an iPhone", [], []),
    ("dead-three-words", "a stove top oven", ["oven", "oven"], ["oven", "oven"]),
    ("misspelling-is-vocabulary", "a televison", ["tv"], ["tv"]),
    ("singular-bus", "a bus and an airbus", ["bus", "airplane"], []),
    ("plural-buses", "two buses", ["bus"], ["bus"]),
    ("ties", "the ties", ["tie"], []),
    ("men", "two men and women and policemen", ["person", "person"], ["person", "person", "person"]),
    ("vases", "three vases", [], ["vase"]),
    ("verb-seated", "A man seated outside", ["person", "chair"], ["person"]),
    ("verb-skiing", "The man is skiing", ["person", "skis"], ["person"]),
    ("verb-tied", "A man tied the rope", ["person", "tie"], ["person"]),
    ("participle-in-pair", "There are parking meters", [], ["parking meter"]),
    ("plural-not-in-wordnet", "bikers with smartphones", [], ["person", "cell phone"]),
    ("ie-plurals", "canoes, collies and magpies", ["boat", "dog", "bird"], []),
    ("color-and-adjective", "orange paint in a remote place", ["orange", "remote"], ["orange", "remote"]),
]


@pytest.mark.parametrize(("name", "caption", "objects"), [(n, c, w) for n, c, w, _ in QUIRKS])
def test_wordnet_quirk(wordnet_finder: MentionFinder, name: str, caption: str, objects: list[str]) -> None:
    assert [mention.category for mention in wordnet_finder.read(caption).mentions] == objects


@pytest.mark.parametrize(("name", "caption", "objects"), [(n, c, p) for n, c, _, p in QUIRKS])
def test_pattern_quirk(pattern_finder: MentionFinder, name: str, caption: str, objects: list[str]) -> None:
    assert [mention.category for mention in pattern_finder.read(caption).mentions] == objects


def test_spans_are_places_in_the_caption_as_written(wordnet_finder: MentionFinder) -> None:
    caption = 'The "Wine  Glasses" and İ two DOGS, near a\nSTOP SIGN.'
    found = wordnet_finder.read(caption).mentions
    assert [caption[mention.start : mention.end] for mention in found] == [
        "Wine  Glasses",
        "DOGS",
        "STOP SIGN",
    ]
    assert [mention.word for mention in found] == ["wine glass", "dog", "stop sign"]


@given(st.text(alphabet="adogcts. \"'`“”,-İΣß\n", max_size=60))
def test_spans_are_in_order_and_inside(wordnet_finder: MentionFinder, caption: str) -> None:
    places = [(mention.start, mention.end) for mention in wordnet_finder.read(caption).mentions]
    flat = [0, *(place for pair in places for place in pair), len(caption)]
    assert flat == sorted(flat)
    assert all(start < end for start, end in places)


def test_words_keep_punctuation_and_merged_pairs(wordnet_finder: MentionFinder) -> None:
    reading = wordnet_finder.read("Two wine glasses, a seat and a toilet.")
    assert reading.words == ("two", "wine glass", ",", "a", "seat", "and", "a", "toilet", ".")


def test_pairs_never_contain_three_words() -> None:
    assert all(len(pair.split()) == 2 for pair in PAIRS)
    assert len(PAIRS) == 25 + 24 + 5


def test_real_table_has_its_dead_entries(shared_data: Path) -> None:
    table = Vocabulary.read(shared_data / "chair" / "synonyms.txt")
    assert len(table.categories) == 80
    assert len(table.category_of) == 403
    assert table.category_of[" motor bike"] == "motorcycle"
    assert table.category_of[" cheesecake"] == "cake"
    assert "motor bike" not in table.category_of
    assert table.category_of["bison"] == "cow"  # the blank at the end of the row is stripped


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_empty_table_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="rows"):
        Vocabulary.parse(text)


def test_word_of_two_categories_is_refused() -> None:
    with pytest.raises(InputError, match="pup"):
        Vocabulary.parse("dog, pup\ncat, pup")


def test_unknown_variant_is_refused(vocabulary: Vocabulary, wordnet_finder: MentionFinder) -> None:
    with pytest.raises(InputError, match="spacy"):
        MentionFinder(vocabulary, "spacy", wordnet_finder._language)  # type: ignore[arg-type]


def test_back_end_is_named(wordnet_finder: MentionFinder) -> None:
    named = wordnet_finder.describe()
    assert named["backend"] == "nltk"
    assert named["wordnet"] == "3.0"
    assert named["sentences"] == "rules"
    assert named["tagger"].startswith("averaged_perceptron_tagger")


def test_pattern_back_end_is_named(pattern_finder: MentionFinder) -> None:
    named = pattern_finder.describe()
    assert named["backend"] == "pattern"
    assert "3.6" in named["pattern"]
    assert "wordnet" not in named
