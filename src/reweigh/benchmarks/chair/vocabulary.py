"""CHAIR's object vocabulary: which word means which of the 80 COCO categories.

Read from the synonym table of the benchmark's authors, which the user provides. The table is used unchanged:
its misspellings are vocabulary, and an entry after a double blank keeps a leading blank and so never matches.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_text


@dataclass(frozen=True)
class Vocabulary:
    """Category names in the table's order, the category of every word, and a hash of the table."""

    categories: tuple[str, ...]
    category_of: dict[str, str]
    sha256: str

    @classmethod
    def read(cls, path: str | Path) -> Vocabulary:
        """Read a table with one category in a row: its name, then its other words, separated by ", "."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the synonym table {path} cannot be read ({error})") from error
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, where: str = "the synonym table") -> Vocabulary:
        """Parse the text of a table."""
        rows = [line.strip().split(", ") for line in text.splitlines() if line.strip()]
        if not rows:
            raise InputError(f"{where} has no rows; expected one row for each category")
        category_of: dict[str, str] = {}
        for row in rows:
            for word in row:
                if category_of.setdefault(word, row[0]) != row[0]:
                    raise InputError(f"{where} gives {word!r} to both {category_of[word]!r} and {row[0]!r}")
        return cls(tuple(row[0] for row in rows), category_of, sha256_text(text))
