from __future__ import annotations

import pickle
import sys
import types
import zipfile
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reweigh.errors import InputError
from reweigh.lab.tasks.language import Language, load_singularize
from reweigh.lab.tasks.nltk_data import Resources, WordNet

FILES = {
    "index.noun": "  1 WordNet 3.0 Copyright\n"
    + "".join(f"{word} n 1\n" for word in ("dog", "man", "men", "vas", "vase", "bus", "foot", "us", "u")),
    "index.verb": "sit v 1\nseat v 1\nski v 1\nbe v 1\n",
    "index.adj": "big a 1\nnice a 1\n",
    "index.adv": "well r 1\n",
    "noun.exc": "feet foot\nmen man\ngeese goose\n",
    "verb.exc": "sat sit\nare be\n",
    "adj.exc": "bigger big\n",
    "adv.exc": "best well\n",
}


@pytest.mark.parametrize(
    ("word", "code", "lemma"),
    [
        ("dogs", "n", "dog"),
        ("dogs", "v", "dogs"),  # no such verb: the word stays
        ("feet", "n", "foot"),  # irregular
        ("geese", "n", "geese"),  # the listed base is not known
        ("men", "n", "men"),  # the word itself is known and as short: the earliest wins
        ("vases", "n", "vas"),  # ses -> s gives vas, s -> "" gives vase: the shortest wins
        ("buses", "n", "bus"),
        ("us", "n", "u"),
        ("seated", "v", "seat"),
        ("skiing", "v", "ski"),
        ("nicer", "a", "nice"),
        ("bigger", "a", "big"),
        ("best", "r", "well"),
        ("dogss", "n", "dogss"),  # substitutions are applied once
        ("DOGS", "n", "DOGS"),
        ("", "n", ""),
    ],
)
def test_base_forms(word: str, code: str, lemma: str) -> None:
    assert WordNet(FILES.__getitem__).lemma(word, code) == lemma


def test_version_is_read_from_the_license() -> None:
    assert WordNet(FILES.__getitem__).version == "3.0"
    assert WordNet(lambda name: "").version == "unknown"


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("a dog. a cat.", 2),
        ("a dog.a cat.", 1),
        ("is it a dog? a cat! yes.", 1),
        ("Mr. Smith sits. He eats.", 2),
        ("it is 5 p.m. and dark", 0),
        ("It is 5 p.m. The dog", 1),
        ("1. a dog 2. A cat", 1),
        ("a dog.) the cat", 1),
        ("J. K. Rowling", 0),
        ("It is on St. Mary Ave. The dog", 1),
    ],
)
def test_sentences_without_data_of_punkt(text: str, ends: int, tmp_path: Path) -> None:
    """Only at the end of a sentence is a full stop a token of its own."""
    pytest.importorskip("nltk")
    words = [token.text for token in Language([tmp_path]).tokens(text)]
    assert words.count(".") == ends


def test_sentences_agree_with_punkt(backend: Language, tmp_path: Path) -> None:
    """The texts hold what decides in Punkt: abbreviations, initials, numbers, quotes and closing marks."""
    if backend.describe_tokens()["sentences"] != "punkt":
        pytest.skip("NLTK's punkt_tab is not installed")
    parts = (
        "a dog sits on St. Mary ave.",
        "it is 5 p.m. in the U.S.",
        'He said "no."',
        "no. 5 is red.",
        "(a cat.)",
    )
    texts = [" ".join(some) for count in (1, 2, 3) for some in product(parts, repeat=count)]
    bare = Language([tmp_path])
    assert [bare.tokens(text) for text in texts] == [backend.tokens(text) for text in texts]


@given(st.text(alphabet="adog \"'`.,!?()[]{}<>-:;@#$%&*“”‘’«»İΣß\n\t0", max_size=50), st.booleans())
def test_tokens_stand_where_they_say(backend: Language, text: str, lower: bool) -> None:
    tokens = backend.tokens(text, lower=lower)
    places = [0, *(place for token in tokens for place in (token.start, token.end)), len(text)]
    assert places == sorted(places)
    for token in tokens:
        written = text[token.start : token.end]
        assert written
        if token.text not in ("``", "''") and not set(text) & set("İΣ"):
            assert (written.lower() if lower else written) == token.text
    covered = "".join(text[token.start : token.end] for token in tokens)
    assert covered == "".join(text.split())


@pytest.mark.parametrize("text", ["<'' a", '<" a', 'a " b', "`` a ''", "a ''b''", "'' \"\""])
def test_rewritten_quotes_are_found(backend: Language, text: str) -> None:
    tokens = backend.tokens(text)
    assert "".join(text[token.start : token.end] for token in tokens) == "".join(text.split())


def test_possessives_and_negations_are_split(backend: Language) -> None:
    words = [token.text for token in backend.tokens("The man's dog isn't here.")]
    assert words == ["The", "man", "'s", "dog", "is", "n't", "here", "."]


def test_missing_data_name_the_command(tmp_path: Path) -> None:
    pytest.importorskip("nltk")
    empty = Language([tmp_path])
    for use in (lambda: empty.tags(["dog"]), lambda: empty.lemma("dogs", "NN"), empty.describe):
        with pytest.raises(InputError, match=r"nltk\.downloader wordnet"):
            use()
    assert [token.text for token in empty.tokens("a dog")] == ["a", "dog"]  # tokens need no data
    assert empty.describe_tokens()["sentences"] == "rules"


def test_archives_serve_as_well_as_folders(tmp_path: Path) -> None:
    (tmp_path / "corpora").mkdir()
    with zipfile.ZipFile(tmp_path / "corpora" / "wordnet.zip", "w") as archive:
        for name, text in FILES.items():
            archive.writestr(f"wordnet/{name}", text)
    data = Resources([tmp_path])
    assert WordNet(lambda name: data.read("corpora/wordnet", name).decode()).lemma("dogs", "n") == "dog"
    with pytest.raises(InputError, match=r"data\.noun"):
        data.read("corpora/wordnet", "data.noun")
    (tmp_path / "corpora" / "omw").mkdir()
    with pytest.raises(InputError, match="index"):
        data.read("corpora/omw", "index")
    (tmp_path / "corpora" / "wordnet.zip").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"nltk\.downloader"):
        data.read("corpora/wordnet", "index.noun")


def test_tagger_data_as_json_or_plain_pickle_only(tmp_path: Path) -> None:
    folder = tmp_path / "taggers" / "averaged_perceptron_tagger"
    folder.mkdir(parents=True)
    path = folder / "averaged_perceptron_tagger.pickle"
    path.write_bytes(pickle.dumps(({"bias": {"NN": 1.0}}, {"the": "DT"}, {"NN", "DT"})))
    assert Resources([tmp_path]).tagger() == (
        {"bias": {"NN": 1.0}},
        {"the": "DT"},
        {"NN", "DT"},
        "averaged_perceptron_tagger",
    )
    path.write_bytes(pickle.dumps(print))
    with pytest.raises(InputError, match=r"builtins\.print"):
        Resources([tmp_path]).tagger()
    path.write_bytes(b"")
    with pytest.raises(InputError, match="plain"):
        Resources([tmp_path]).tagger()
    modern = tmp_path / "taggers" / "averaged_perceptron_tagger_eng"
    modern.mkdir()
    for part, text in (("weights", '{"bias": {}}'), ("tagdict", "{}"), ("classes", '["NN"]')):
        (modern / f"averaged_perceptron_tagger_eng.{part}.json").write_text(text)
    assert Resources([tmp_path]).tagger() == ({"bias": {}}, {}, {"NN"}, "averaged_perceptron_tagger_eng")


def test_another_project_called_pattern_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pattern").mkdir()
    (tmp_path / "pattern" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pattern", raising=False)
    load_singularize.cache_clear()
    try:
        with pytest.raises(InputError, match="CLiPS"):
            load_singularize()
    finally:
        load_singularize.cache_clear()


def test_singular_forms_come_without_the_rest_of_pattern() -> None:
    try:
        singularize, package = load_singularize()
    except InputError as error:
        pytest.skip(error.message)
    assert [singularize(word) for word in ("dogs", "bus", "ties", "glass", "men")] == [
        *("dog", "bu", "ty", "glas", "man")
    ]
    assert package
    assert "pattern.text.en" not in sys.modules  # its import would download corpora
    assert isinstance(sys.modules["pattern.text.en.inflect"], types.ModuleType)
