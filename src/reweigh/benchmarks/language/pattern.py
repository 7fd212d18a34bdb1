"""The singular forms of CLiPS pattern, which the first CHAIR scorers used.

Takes ``singularize`` out of an installed pattern without importing ``pattern.en``, whose import downloads
corpora. The project called ``pattern`` on the package index today is a different one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
import types
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

from reweigh.errors import InputError

_HINT = "pip install --no-deps PatternLite (it carries the genuine inflection rules)"


@lru_cache(maxsize=1)
def load_singularize() -> tuple[Callable[[str], str], str]:
    """Return pattern's ``singularize`` with a cache, and the name and version of its package."""
    spec = importlib.util.find_spec("pattern")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    if not folders:
        raise InputError("the variant 'pattern' needs CLiPS pattern, which is not installed", hint=_HINT)
    english = [
        folder / "text" / "en" for folder in folders if (folder / "text" / "en" / "inflect.py").is_file()
    ]
    if not english:
        raise InputError(
            f"the package 'pattern' at {folders[0]} is not CLiPS pattern: it has no text/en/inflect.py",
            hint=_HINT,
        )
    singularize: Callable[[str], str] = _inflect(english[0]).singularize
    return lru_cache(maxsize=1 << 16)(singularize), _distribution()


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


def _distribution() -> str:
    for name in importlib.metadata.packages_distributions().get("pattern", []):
        return f"{name} {importlib.metadata.version(name)}"
    return "pattern, version unknown"
