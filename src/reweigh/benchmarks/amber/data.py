"""AMBER's own files: annotations, associated words, safe words and queries. They are read as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.artifacts import read_json
from reweigh.benchmarks.files import find_files, require_file
from reweigh.errors import InputError

GENERATIVE = "generative"


@dataclass(frozen=True)
class Annotations:
    """The annotation of every record, by id."""

    generative: Mapping[int, Mapping[str, Any]]
    discriminative: Mapping[int, Mapping[str, Any]]

    @classmethod
    def read(cls, data_dir: Path) -> Annotations:
        """Read ``annotations.json``."""
        path = require_file(data_dir, "annotations.json", benchmark="amber")
        halves: tuple[dict[int, Any], dict[int, Any]] = ({}, {})
        try:
            for row in read_json(path):
                _check_row(row)
                halves[row["type"] != GENERATIVE][row["id"]] = row
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path} is not AMBER's annotation file: {error}") from error
        return cls(*halves)


def _check_row(row: Mapping[str, Any]) -> None:
    if row["type"] == GENERATIVE:
        wrong = not isinstance(row["truth"], list) or not isinstance(row["hallu"], list)
    else:
        wrong = row["truth"] not in ("yes", "no")
    if wrong or type(row["id"]) is not int:
        raise ValueError(f"record {row['id']!r} is not one of the {row['type']} kind")


@dataclass(frozen=True)
class Words:
    """AMBER's closed vocabulary: associated words of each object, and words that never count."""

    associated: Mapping[str, list[str]]
    safe: frozenset[str]
    vocabulary: frozenset[str]

    @classmethod
    def read(cls, data_dir: Path) -> Words:
        """Read ``relation.json`` and ``safe_words.txt``."""
        associated = read_json(require_file(data_dir, "relation.json", benchmark="amber"))
        safe = require_file(data_dir, "safe_words.txt", benchmark="amber").read_text(encoding="utf-8")
        vocabulary = frozenset(associated) | {word for words in associated.values() for word in words}
        return cls(associated, frozenset(safe.splitlines()), vocabulary)

    def candidates(self, objects: list[str]) -> list[tuple[str, int]]:
        """List the words that point to an object, with the object's index: associated ones, then the objects."""
        near = [(word, index) for index, name in enumerate(objects) for word in self._near(name)]
        return near + [(name, index) for index, name in enumerate(objects)]

    def _near(self, name: str) -> list[str]:
        if name not in self.associated:
            raise InputError(
                f"the annotated object {name!r} is not in relation.json",
                hint="annotations.json and relation.json must be of the same release",
            )
        return self.associated[name]


def read_queries(data_dir: Path) -> dict[int, Mapping[str, Any]]:
    """Read all query files there are, by record id; none is an empty map."""
    rows: dict[int, Mapping[str, Any]] = {}
    for path in find_files(data_dir, "query_*.json"):
        try:
            rows.update({row["id"]: row for row in read_json(path)})
        except (KeyError, TypeError) as error:
            raise InputError(f"{path} is not an AMBER query file: {error} is missing") from error
    return rows


def require_queries(data_dir: Path, ids: Mapping[int, Any], kind: str) -> list[Mapping[str, Any]]:
    """Give the queries of records in the order of their ids, or say how to get them."""
    rows = read_queries(data_dir)
    if missing := [identity for identity in ids if identity not in rows]:
        raise InputError(
            f"the query files in {data_dir} lack {len(missing)} of {len(ids)} {kind} records, "
            f"the first is id {missing[0]}",
            hint=f"fetch query_{kind}.json with `reweigh data get amber`",
        )
    return [rows[identity] for identity in sorted(ids)]
