"""What is in a user's pictures: one JSON line for each, checked strictly, and the vocabulary that the file makes.

``{"image": "a.jpg", "objects": ["dog"], "absent": ["cat"], "synonyms": {"dog": ["puppy"]}}``: only the first two are
needed. The vocabulary is every object that any line names. A synonym given once holds for the whole file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_text

FIELDS = ("image", "objects", "absent", "synonyms")
HINT = 'one line for each picture: {"image": "a.jpg", "objects": ["dog", "person"]}'


@dataclass(frozen=True)
class Picture:
    """One line: what the picture shows, and what it certainly does not."""

    image: str
    objects: frozenset[str]
    absent: tuple[str, ...]


class Truth:
    """A file of pictures with their objects.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the truth file {path} cannot be read ({error})", hint=f"--option truth=FILE; {HINT}"
            ) from error
        self.sha256 = sha256_text(text)
        self.pictures: dict[str, Picture] = {}
        self._forms: dict[str, str] = {}
        synonyms: list[tuple[str, str, str]] = []
        for where, row in self._rows(text):
            picture = _picture(where, row)
            if picture.image in self.pictures:
                raise InputError(f"{where}, names the picture {picture.image} a second time")
            self.pictures[picture.image] = picture
            synonyms += [(where, form, name) for name, forms in _synonyms(where, row) for form in forms]
        if not self.pictures:
            raise InputError(f"{path} holds no picture", hint=HINT)
        named = {name for one in self.pictures.values() for name in (*one.objects, *one.absent)}
        self.names = sorted(named | {name for _, _, name in synonyms})
        for name in self.names:
            self._add(str(path), name, name)
        for where, form, name in synonyms:
            self._add(where, form, name)
        for form, name in list(self._forms.items()):
            self._forms.setdefault(plural(form), name)  # a form of the file wins
        longest = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile(r"(?<!\w)(?:" + "|".join(map(re.escape, longest)) + r")(?!\w)")

    def mentions(self, text: str) -> list[tuple[str, str, int, int]]:
        """Word, object, start and end of each mention; the longest form wins."""
        if len(lowered := text.lower()) != len(
            text
        ):  # a few letters change their length: compare them as they are
            lowered = "".join(one.lower() if len(one.lower()) == 1 else one for one in text)
        return [
            (text[found.start() : found.end()], self._forms[found.group()], found.start(), found.end())
            for found in self._pattern.finditer(lowered)
        ]

    def missing(self, folder: Path) -> list[str]:
        """Pictures whose file is not in a folder."""
        return [image for image in self.pictures if not (folder / image).is_file()]

    def _rows(self, text: str) -> Iterator[tuple[str, Any]]:
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                where = f"{self.path}, line {number}"
                try:
                    yield where, json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{where}, is not valid JSON ({error})", hint=HINT) from error

    def _add(self, where: str, form: str, name: str) -> None:
        other = self._forms.setdefault(form.lower(), name)
        if other != name:
            raise InputError(
                f"{where}, has {form!r} as a word for {name!r}, but it is also a word for {other!r}"
            )


def plural(form: str) -> str:
    """The regular English plural; irregular ones are given as synonyms.

    >>> [plural(form) for form in ("dog", "bus", "bench", "berry", "toy")]
    ['dogs', 'buses', 'benches', 'berries', 'toys']
    """
    if re.search(r"(?:[sxz]|ch|sh)$", form):
        return f"{form}es"
    return f"{form[:-1]}ies" if re.search(r"[^aeiou]y$", form) else f"{form}s"


def _picture(where: str, row: Any) -> Picture:
    if not isinstance(row, Mapping):
        raise InputError(f"{where}, is not a JSON object", hint=HINT)
    if unknown := [name for name in row if name not in FIELDS]:
        raise InputError(f"{where}, has the unknown field {unknown[0]!r}", hint=f"known: {', '.join(FIELDS)}")
    if not isinstance(image := row.get("image"), str) or not image.strip():
        raise InputError(f"{where}, has no image name", hint=HINT)
    if "objects" not in row:
        raise InputError(f"{where}, lacks objects", hint="an empty list if none of them is in the picture")
    objects, absent = (_words(where, name, row.get(name, [])) for name in ("objects", "absent"))
    if both := sorted(set(objects) & set(absent)):
        raise InputError(f"{where}, has {both[0]!r} both as present and as absent")
    return Picture(image, frozenset(objects), absent)


def _synonyms(where: str, row: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    given = row.get("synonyms", {})
    if not isinstance(given, Mapping):
        raise InputError(f"{where}, has synonyms that are not an object", hint='{"dog": ["puppy"]}')
    for name, forms in given.items():
        yield _words(where, "synonyms", [name])[0], _words(where, "synonyms", forms)


def _words(where: str, field: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(one, str) and one.strip() for one in given):
        raise InputError(f"{where}, has {field} that are not a list of words", hint='["dog", "wine glass"]')
    return tuple(dict.fromkeys(" ".join(one.lower().split()) for one in given))
