"""AMBER's files (annotations, associated words, safe words, queries), and what its two halves share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from reweigh.errors import InputError
from reweigh.files.artifacts import read_json
from reweigh.lab.tasks.base import Benchmark, Id, Item, Question, Record, Response, Summary
from reweigh.lab.tasks.data import Dataset, File, find_files, parsing, require_file

GENERATIVE, DISCRIMINATIVE = "generative", "discriminative"
_OTHER = {GENERATIVE: DISCRIMINATIVE, DISCRIMINATIVE: GENERATIVE}

_SOURCE = "https://raw.githubusercontent.com/junyangwang0410/AMBER/534babf6bbfcce2e735c26289dedfb21cef3c939"


def _amber(name: str, size: int, sha256: str) -> File:
    return File(name=name, url=f"{_SOURCE}/data/{name}", size=size, checksum=f"sha256:{sha256}")


DATASET = Dataset(
    name="amber",
    title="AMBER: annotations, word lists and questions",
    license="Apache-2.0",
    page="https://github.com/junyangwang0410/AMBER",
    files=(
        _amber(
            "annotations.json",
            1_813_301,
            "db22a436c4836fbb295e60b4e80d519573077579fb7032f01b193c1bd022b797",
        ),
        _amber("relation.json", 12_699, "c4c1491e9bbc3209abc1888c12a1bf8413bdbab8a0d8be04b990a2e7680cf23e"),
        _amber("safe_words.txt", 57, "f92cf1123f4578a2630832fac3e6ac4de36212ea55859d3bed4fd233723f4043"),
        _amber("metrics.txt", 899, "2fbe2ee584d10e7ce0a568a4902d3d2296727d45f761bf091dd35c4e4b5bc6ac"),
        _amber(
            "query/query_generative.json",
            106_220,
            "b7e4c36596126ee36d2c3922638b7fa98743c26efda78fea2315f4425258d087",
        ),
        _amber(
            "query/query_discriminative.json",
            1_738_529,
            "1502887ac020f4bb7ea564af4e37bddcb030d61b78490d00f9da492a2307abb8",
        ),
    ),
    by_hand="download the 1,004 images from the link on the page and pass their folder with --option images=DIR",
)


def read_annotations(data_dir: Path) -> dict[str, dict[int, Mapping[str, Any]]]:
    """Read the annotation of every record of both halves, by id."""
    path = require_file(data_dir, "annotations.json", benchmark="amber")
    halves: dict[str, dict[int, Mapping[str, Any]]] = {GENERATIVE: {}, DISCRIMINATIVE: {}}
    with parsing(f"{path} is not AMBER's annotation file"):
        for row in read_json(path):
            half = GENERATIVE if row["type"] == GENERATIVE else DISCRIMINATIVE
            if half == GENERATIVE:
                valid = isinstance(row["truth"], list) and isinstance(row["hallu"], list)
            else:
                valid = row["truth"] in ("yes", "no")
            if not valid or type(row["id"]) is not int:
                raise TypeError(f"record {row['id']!r} is not a valid {row['type']} record")
            halves[half][row["id"]] = row
    return halves


@dataclass(frozen=True)
class Words:
    """AMBER's closed vocabulary: words associated with each object, and words that never count."""

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
        """List the words that stand for an object, with the object's index: associated words, then the objects' names."""
        near = [(word, index) for index, name in enumerate(objects) for word in self._near(name)]
        return near + [(name, index) for index, name in enumerate(objects)]

    def _near(self, name: str) -> list[str]:
        if name not in self.associated:
            raise InputError(
                f"the annotated object {name!r} is not in relation.json",
                hint="annotations.json and relation.json must come from the same release",
            )
        return self.associated[name]


@dataclass(eq=False, repr=False)
class Half(Benchmark):
    """One half of AMBER over the folder of its files.

    Args:
        mixed: Whether to accept and ignore answers to the other half among the responses.
    """

    dataset = DATASET
    max_new_tokens: ClassVar[int]
    half: ClassVar[str]

    _: KW_ONLY
    mixed: bool = False

    @cached_property
    def _annotations(self) -> dict[str, dict[int, Mapping[str, Any]]]:
        return read_annotations(self.data_dir)

    @property
    def _rows(self) -> Mapping[int, Mapping[str, Any]]:
        """The annotations of this half by id."""
        return self._annotations[self.half]

    @cached_property
    def _queries(self) -> dict[int, dict[str, str]]:
        """The queries of both halves by id, from the files that exist."""
        rows: dict[int, dict[str, str]] = {}
        for path in find_files(self.data_dir, "query_*.json"):
            with parsing(f"{path} is not an AMBER query file"):
                for row in read_json(path):
                    rows[row["id"]] = {"image": str(row["image"]), "query": str(row["query"])}
        return rows

    def records(self, *, limit: int | None = None, seed: int = 42) -> list[Record]:
        """List the queries of this half verbatim, in the official order."""
        if missing := [identity for identity in self._rows if identity not in self._queries]:
            raise InputError(
                f"the query files in {self.data_dir} lack {len(missing)} of {len(self._rows)} {self.half} "
                f"records, the first is id {missing[0]}",
                hint=f"fetch query_{self.half}.json with `reweigh data amber`",
            )
        rows = {identity: self._queries[identity] for identity in sorted(self._rows)[:limit]}
        return [
            Record(id=key, image=row["image"], prompt=row["query"], max_new_tokens=self.max_new_tokens)
            for key, row in rows.items()
        ]

    def score(
        self, responses: Sequence[Response], *, ids: Collection[Id] | None = None
    ) -> tuple[list[Item], Summary]:
        others = {} if not self.mixed else self._annotations[_OTHER[self.half]]
        mine = [response for response in responses if response.id not in others]
        return super().score(mine, ids=ids)

    def asked(self, identity: Id) -> Question | None:
        """Return the image of an id and, for a yes/no question, its text; a description may have any prompt."""
        row = self._queries.get(identity) if isinstance(identity, int) else None
        return None if row is None else Question(row["image"], row["query"] if self.yes_no else None)

    def known_ids(self) -> Collection[Id]:
        return self._rows.keys()
