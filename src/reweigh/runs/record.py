"""The record of a run: everything its responses depend on, kept beside them and compared at every resumption.

A run folder holds ``record.json`` (this), ``manifest.jsonl`` (the questions) and ``responses.jsonl`` (the
answers). Resuming with another configuration is refused, naming the first key that differs.
"""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.artifacts import append_jsonl, read_json, read_jsonl, sha256_file, sha256_json, write_json
from reweigh.benchmarks.base import Record
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.provenance import environment, first_difference

RECORD, MANIFEST, RESPONSES = "record.json", "manifest.jsonl", "responses.jsonl"
ITEMS, RESULTS, REPORT = "items.jsonl", "results.json", "report.html"
SCHEMA = 1
NOT_COMPARED = frozenset({"places"})
"""Folders of data and images: where they are does not change a response; what they hold does, and is hashed."""


@dataclass(frozen=True, slots=True)
class Shard:
    """Part ``index`` of ``count``, counted from 1; the parts of all indices are the whole."""

    index: int = 1
    count: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.index <= self.count:
            raise InputError(
                f"shard {self} is not one of {self.count}", hint="give 1/4, 2/4, 3/4 or 4/4, say"
            )

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read ``i/n``."""
        index, slash, count = text.partition("/")
        if not (slash and index.strip().isdecimal() and count.strip().isdecimal()):
            raise InputError(f"shard {text!r} is not of the form i/n", hint="give 1/4 for the first of four")
        return cls(int(index), int(count))

    def of(self, records: Sequence[Record]) -> list[Record]:
        """The records of this part: every ``count``-th, so that parts are alike."""
        return list(records[self.index - 1 :: self.count])


def manifest_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The records as plain rows."""
    return [
        {
            "id": record.id,
            "image": record.image,
            "prompt": record.prompt,
            "max_new_tokens": record.max_new_tokens,
        }
        for record in records
    ]


def make_record(
    *,
    benchmark: Mapping[str, Any],
    model: Mapping[str, Any],
    decoding: Mapping[str, Any],
    records: Sequence[Record],
    images: Path,
    seed: int,
    folders: Mapping[str, str],
) -> dict[str, Any]:
    """Put together what a run's responses depend on, hashing what is too large to write down."""
    rows = manifest_rows(records)
    names = sorted({record.image for record in records})
    return {
        "schema": SCHEMA,
        "benchmark": dict(benchmark),
        "model": dict(model),
        "decoding": dict(decoding),
        "seed": seed,
        "records": len(records),
        "manifest_sha256": sha256_json(rows),
        "prompts_sha256": sha256_json(sorted({record.prompt for record in records})),
        "images_sha256": sha256_json({name: sha256_file(find_image(images, name)) for name in names}),
        "environment": environment(),
        "places": dict(folders),
    }


def find_image(folder: Path, name: str) -> Path:
    """An image of the benchmark: at its path below the folder, or by its bare name there or up to two levels down."""
    path = folder / name
    if path.is_file():
        return path
    bare = glob.escape(Path(name).name)
    for pattern in (bare, f"*/{bare}", f"*/*/{bare}"):
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(found) > 1:
            raise InputError(f"the image {name} is in {folder} twice: {found[0]} and {found[1]}")
        if found:
            return found[0]
    raise InputError(
        f"the image {name} is not in {folder}", hint="name the folder of the images with --images"
    )


def open_run(folder: Path, record: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Begin a run in an empty folder, or make sure that an existing run is the same one."""
    path = folder / RECORD
    if not path.exists():
        if (folder / RESPONSES).exists():
            raise ArtifactError(f"{folder} holds responses but no {RECORD}", hint="choose another folder")
        (folder / MANIFEST).unlink(missing_ok=True)
        append_jsonl(folder / MANIFEST, manifest_rows(records))
        # The record comes last: a folder with a record is a run that began properly.
        write_json(path, record)
        return
    kept = read_json(path)
    if (found := first_difference(kept, record, ignore=NOT_COMPARED)) is not None:
        raise MismatchError(
            f"{folder} holds a run with another {found.key}: {found.first!r} there, {found.second!r} now",
            hint="choose another folder, or repeat the configuration in its record.json",
        )


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and the manifest of a run folder."""
    record = read_json(folder / RECORD)
    rows = read_jsonl(folder / MANIFEST)
    if sha256_json(rows) != record.get("manifest_sha256"):
        raise ArtifactError(
            f"{folder / MANIFEST} is not the manifest of its record", hint="it was altered or cut"
        )
    return record, rows
