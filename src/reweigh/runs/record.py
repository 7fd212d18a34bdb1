"""The record of a run: everything its responses depend on, kept beside them and compared at every resumption.

A run folder holds ``record.json`` (this), ``manifest.jsonl`` (the questions) and ``responses.jsonl`` (the
answers). It verifies itself: the record is sealed and holds the hash of the manifest, and every answer is sealed with the
hash of the record. Resuming with another configuration is refused, naming the first key that differs.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath
from typing import Any

from reweigh.benchmarks.base import Record
from reweigh.benchmarks.judge.kinds import CHAT
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import (
    drop_abandoned,
    read_json,
    read_jsonl,
    require_fields,
    sha256_file,
    sha256_json,
    write_text,
)
from reweigh.files.seals import SEAL, read_sealed, require_own_rows, write_sealed
from reweigh.provenance import environment, first_difference

RECORD, MANIFEST, RESPONSES = "record.json", "manifest.jsonl", "responses.jsonl"
ITEMS, RESULTS, REPORT = "items.jsonl", "results.json", "report.html"
USUAL = ("", CHAT)
"""Kinds of judge whose scores carry the plain names: none at all, and the official one."""
SCHEMA = 2
FIELDS = {
    "schema": int,
    "benchmark": dict,
    "model": dict,
    "decoding": dict,
    "records": int,
    "manifest_sha256": str,
}
"""What every record holds."""

NOT_COMPARED = frozenset({"places"})
"""Folders of data and images: where they are does not change a response; what they hold does, and is hashed."""


@dataclass(frozen=True, slots=True)
class ScoreFiles:
    """Names of the files that scoring writes; scores of another kind of judge stand beside the usual ones."""

    items: str
    results: str
    report: str

    @classmethod
    def of(cls, judge: str = "") -> ScoreFiles:
        """The names for a kind of judge.

        Example:
            >>> ScoreFiles.of("systemone").results
            'results-systemone.json'
        """
        if judge in USUAL:
            return cls(ITEMS, RESULTS, REPORT)
        return cls(*(f"{Path(name).stem}-{judge}{Path(name).suffix}" for name in (ITEMS, RESULTS, REPORT)))


def manifest_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """The records as plain rows."""
    return [asdict(record) for record in records]


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
    """An image of the benchmark: at its path below the folder, or by its bare name there or up to two levels down.

    Raises:
        InputError: It is not there, is there twice, or its name leads out of the folder.
    """
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts or "\0" in name or not name.strip("./"):
        raise InputError(
            f"the image {name!r} is not a name below {folder}",
            hint="the benchmark's file is not what it seems; fetch it again",
        )
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
        f"the image {name} is not in {folder}", hint="name the folder of the images with --option images=DIR"
    )


def require_run(folder: Path, records: Sequence[Record]) -> None:
    """Refuse a folder whose files are not those of a run, or that holds other questions or responses without a record."""
    if (folder / RECORD).exists():
        read_run(folder)
        require_own_rows(folder / RESPONSES, owner=run_owner(folder))
        return
    if (folder / RESPONSES).exists():
        raise ArtifactError(f"{folder} holds {RESPONSES} but no {RECORD}", hint="choose another folder")
    manifest = folder / MANIFEST
    if manifest.exists() and manifest.read_bytes() != _manifest_text(records).encode():
        raise ArtifactError(f"{manifest} exists and belongs to another run", hint="choose another folder")


def _manifest_text(records: Sequence[Record]) -> str:
    rows = manifest_rows(records)
    return "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in rows)


def open_run(folder: Path, record: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Begin a run in an empty folder, or make sure that an existing run is the same one."""
    drop_abandoned(folder)
    require_run(folder, records)
    if not (folder / RECORD).exists():
        write_text(folder / MANIFEST, _manifest_text(records))
        # The record comes last: a folder with a record is a run that was started completely.
        write_sealed(folder / RECORD, record)
        return
    kept, _ = read_run(folder)
    if (found := first_difference(kept, record, ignore=NOT_COMPARED)) is not None:
        raise MismatchError(
            "{} has a run with another {}: {} there, {} now".format(folder, found.key, *found.words),
            hint="choose another folder, or repeat the configuration in its record.json",
        )


def read_record(folder: Path) -> dict[str, Any]:
    """The record of a run folder, verified."""
    if not (folder / RECORD).is_file():
        raise InputError(
            f"{folder} is not a run folder: it has no {RECORD}", hint="give a run folder or a response file"
        )
    page = read_json(folder / RECORD)
    if isinstance(page, dict) and SEAL not in page and page.get("schema") == 1:
        raise ArtifactError(
            f"the run in {folder} was written by an older version, whose files carry no hash",
            hint=f"score its {RESPONSES} as a response file, with --benchmark and --out, or run it again",
        )
    record = read_sealed(folder / RECORD)
    require_fields(record, folder / RECORD, FIELDS)
    if record["schema"] != SCHEMA:
        raise ArtifactError(
            f"{folder / RECORD} has schema {record['schema']}, this version reads {SCHEMA}",
            hint="upgrade reweigh, or run it again in another folder",
        )
    return record


def run_owner(folder: Path) -> str:
    """What the rows of a run folder are sealed with: the hash of its record, without what may differ.

    A folder of answers without a record has none.
    """
    if not (folder / RECORD).exists():
        return ""
    return sha256_json({key: value for key, value in read_record(folder).items() if key not in NOT_COMPARED})


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The record and the manifest of a run folder, verified."""
    record = read_record(folder)
    rows = read_jsonl(folder / MANIFEST)
    try:
        whole = sha256_json(rows) == record["manifest_sha256"]
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise ArtifactError(
            f"{folder / MANIFEST} does not match its record", hint="it was altered or truncated"
        )
    return record, rows
