"""Which words of AMBER's closed vocabulary are near each other: similarity above 0.8.

The official scorer asks spaCy's ``en_core_web_lg`` for every pair. As the vocabulary is closed, a list of the near
pairs says the same; a word is always near itself. What was used is named in every result.
"""

from __future__ import annotations

import importlib.util
import json
import warnings
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path
from typing import Any

from reweigh.errors import InputError, MissingExtraError
from reweigh.files.artifacts import sha256_file

MODEL = "en_core_web_lg"
THRESHOLD = 0.8

Similar = Callable[[str, str], bool]


def choose_similarity(wanted: str, table: str | Path | None) -> tuple[Similar, dict[str, Any]]:
    """Return the similarity and its description.

    Args:
        wanted: ``spacy``, ``table``, ``exact``, or ``auto``: the table if one is given, else spaCy's model if
            it is installed, else exact words only.
        table: File of near pairs.
    """
    if wanted not in ("auto", "spacy", "table", "exact"):
        raise InputError(f"{wanted!r} is not a similarity", hint="use auto, spacy, table or exact")
    if wanted == "auto":
        installed = importlib.util.find_spec(MODEL) is not None
        wanted = "table" if table is not None else "spacy" if installed else "exact"
    if wanted == "table":
        if table is None:
            raise InputError("the similarity 'table' needs a file of near pairs")
        return _table_similarity(read_pairs(table)), {"kind": "table", "sha256": sha256_file(table)}
    if wanted == "spacy":
        return _spacy_similarity()
    return (lambda first, second: first == second), {
        "kind": "exact",
        "note": f"near words were not forgiven, because neither {MODEL} nor a table of pairs is available",
    }


def read_pairs(path: str | Path) -> set[frozenset[str]]:
    """Read near pairs: JSON lists of two words, or lines of two words; a number after them must exceed 0.8."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            rows = json.loads(text)
        else:
            rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
        return {frozenset(row[:2]) for row in rows if _is_near(row)}
    except OSError as error:
        raise InputError(f"the table of pairs {path} cannot be read ({error})") from error
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path} is not a table of word pairs ({error})") from error


def _is_near(row: Any) -> bool:
    if len(row) not in (2, 3) or not all(isinstance(word, str) for word in row[:2]):
        raise ValueError(f"expected two words and perhaps a number, got {row!r}")
    return len(row) == 2 or float(row[2]) > THRESHOLD


def _table_similarity(pairs: Collection[frozenset[str]]) -> Similar:
    return lambda first, second: first == second or frozenset((first, second)) in pairs


def _spacy_similarity() -> tuple[Similar, dict[str, Any]]:
    try:
        import spacy
    except ImportError as error:
        raise MissingExtraError("AMBER's similarity", "eval", "spacy") from error
    try:
        model = spacy.load(MODEL)
    except OSError as error:
        raise InputError(
            f"spaCy's model {MODEL} is not installed", hint=f"get it with: python -m spacy download {MODEL}"
        ) from error
    document = cache(model)

    @cache
    def similar(first: str, second: str) -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a word without a vector is not near anything, on purpose
            return bool(document(first).similarity(document(second)) > THRESHOLD)

    return similar, {
        "kind": "spacy",
        "model": MODEL,
        "version": model.meta["version"],
        "spacy": spacy.__version__,
    }
