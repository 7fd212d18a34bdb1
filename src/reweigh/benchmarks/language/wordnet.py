"""WordNet base forms, from WordNet's own index and exception files.

The rule of the published scorers: the word itself, then the listed bases of an irregular form or every suffix
substitution of a regular one; of those that WordNet knows in that class the shortest wins, the earliest on a
tie; if none is known, the word stays. Computed here rather than by NLTK because NLTK's rule changed between
releases (3.8 applied the substitutions repeatedly) and its whole WordNet takes long to load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

CLASSES: Mapping[str, str] = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}

_SUBSTITUTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "n": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "v": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}


class WordNet:
    """Base forms for the word classes n, v, a, r.

    Args:
        read: Gives the text of a WordNet file by name ("index.noun", "noun.exc").
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        index = {code: read(f"index.{name}") for code, name in CLASSES.items()}
        self._known = {code: frozenset(_first_words(text)) for code, text in index.items()}
        self._irregular = {code: _exceptions(read(f"{name}.exc")) for code, name in CLASSES.items()}
        version = re.search(r"WordNet (\d+\.\d+)", index["n"][:2000])
        self.version = version.group(1) if version else "unknown"
        self.lemma = lru_cache(maxsize=1 << 16)(self._lemma)

    def _lemma(self, word: str, code: str) -> str:
        known = self._known[code]
        forms = [form for form in [word, *self._candidates(word, code)] if form in known]
        return min(forms, key=len) if forms else word

    def _candidates(self, word: str, code: str) -> Iterable[str]:
        if word in self._irregular[code]:
            return self._irregular[code][word]
        return [word[: -len(suffix)] + base for suffix, base in _SUBSTITUTIONS[code] if word.endswith(suffix)]


def _first_words(text: str) -> Iterable[str]:
    """Give the lemmas of an index file; lines that start with a blank are its licence."""
    return (line.split(" ", 1)[0] for line in text.split("\n") if line and not line.startswith(" "))


def _exceptions(text: str) -> dict[str, list[str]]:
    rows = (line.split() for line in text.split("\n"))
    return {row[0]: row[1:] for row in rows if row}
