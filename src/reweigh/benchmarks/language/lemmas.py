"""WordNet base forms, from WordNet's own index and exception files.

The rule of the published scorers: candidates are the word itself, then the listed bases of an irregular form or every
suffix substitution of a regular one. Of those that WordNet knows in that class, the shortest wins, the earliest on a
tie; if none is known, the word stays. NLTK is not used because its rule changed between releases (3.8 applied the
substitutions repeatedly) and its whole WordNet takes long to load.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re
import sys
import types
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from reweigh.errors import InputError

CLASSES: Mapping[str, str] = {"n": "noun", "v": "verb", "a": "adj", "r": "adv"}

_SUBSTITUTIONS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "n": (
        *(("s", ""), ("ses", "s"), ("ves", "f"), ("xes", "x"), ("zes", "z")),
        *(("ches", "ch"), ("shes", "sh"), ("men", "man"), ("ies", "y")),
    ),
    "v": (
        *(("s", ""), ("ies", "y"), ("es", "e"), ("es", "")),
        *(("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    ),
    "a": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "r": (),
}


class WordNet:
    """Base forms for the word classes n, v, a, r.

    Args:
        read: Returns the text of a WordNet file by name ("index.noun", "noun.exc").
    """

    def __init__(self, read: Callable[[str], str]) -> None:
        index = {code: read(f"index.{name}") for code, name in CLASSES.items()}
        self._known: dict[str, frozenset[str]] = {}
        self._irregular: dict[str, dict[str, list[str]]] = {}
        for code, name in CLASSES.items():
            lines = index[code].split("\n")
            # Lines that start with a blank are the license.
            self._known[code] = frozenset(line.split(" ", 1)[0] for line in lines if line and line[0] != " ")
            rows = (line.split() for line in read(f"{name}.exc").split("\n"))
            self._irregular[code] = {row[0]: row[1:] for row in rows if row}
        version = re.search(r"WordNet (\d+\.\d+)", index["n"][:2000])
        self.version = version.group(1) if version else "unknown"
        self.lemma = lru_cache(maxsize=1 << 16)(self._lemma)

    def _lemma(self, word: str, code: str) -> str:
        bases = self._irregular[code].get(word)
        if bases is None:
            rules = _SUBSTITUTIONS[code]
            bases = [word[: -len(suffix)] + base for suffix, base in rules if word.endswith(suffix)]
        forms = [form for form in (word, *bases) if form in self._known[code]]
        return min(forms, key=len) if forms else word


_HINT = "pip install --no-deps PatternLite (it carries the genuine inflection rules)"


@lru_cache(maxsize=1)
def load_singularize() -> tuple[Callable[[str], str], str]:
    """Return pattern's ``singularize`` with a cache, and the name and version of its package."""
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
