"""The record of a run: everything its responses depend on, stored beside them and compared when a run resumes.

A run folder holds ``record.json``, ``manifest.jsonl`` (the questions) and ``responses.jsonl`` (the answers). It verifies
itself: the record is sealed and holds the hash of the manifest, and every answer is sealed with the hash of the record.
Resuming with another configuration is refused, naming the first key that differs.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

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
from reweigh.lab.tasks.base import Record
from reweigh.lab.tasks.data import find_files
from reweigh.provenance import environment, first_difference

RECORD, MANIFEST, RESPONSES = "record.json", "manifest.jsonl", "responses.jsonl"
ITEMS, RESULTS, REPORT = "items.jsonl", "results.json", "report.html"
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
"""Folders of data and images: their place does not change a response; their content does, and is hashed."""


def manifest_rows(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the records as plain rows."""
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
    """Collect everything that a run's responses depend on; what is large is hashed."""
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
    """Find an image at its path below a folder, or by its bare name there or up to two levels down."""
    if PurePath(name).is_absolute() or ".." in PurePath(name).parts or "\0" in name or not name.strip("./"):
        raise InputError(
            f"the image {name!r} is not a name below {folder}",
            hint="the benchmark's file is damaged or not the right one; fetch it again",
        )
    path = folder / name
    if path.is_file():
        return path
    found = find_files(folder, glob.escape(Path(name).name))
    if len(found) > 1:
        raise InputError(f"the image {name} is in {folder} twice: {found[0]} and {found[1]}")
    if found:
        return found[0]
    raise InputError(
        f"the image {name} is not in {folder}", hint="name the folder of the images with --option images=DIR"
    )


def require_run(folder: Path, records: Sequence[Record]) -> None:
    """Refuse a folder whose files are not those of a run of these records."""
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
    """Start a run in an empty folder, or make sure that an existing run is the same one."""
    drop_abandoned(folder)
    require_run(folder, records)
    if not (folder / RECORD).exists():
        write_text(folder / MANIFEST, _manifest_text(records))
        # The record comes last: a folder with a record is a run that was started completely.
        write_sealed(folder / RECORD, record)
        return
    require_same(folder, record)


def require_same(folder: Path, part: Mapping[str, Any]) -> None:
    """Refuse a run whose record differs from what is known so far; the first key that differs is named."""
    kept = read_record(folder)
    one, other = (_spelled_out({key: record.get(key) for key in part}) for record in (kept, part))
    if (found := first_difference(one, other, ignore=NOT_COMPARED)) is not None:
        raise MismatchError(
            "{} has a run with another {}: {} there, {} now".format(folder, found.key, *found.words),
            hint="choose another folder, or repeat the configuration in its record.json",
        )


def _spelled_out(record: dict[str, Any]) -> dict[str, Any]:
    """Tell an option that was set to None from one that was not given: its default may be another value."""
    for name in ("benchmark", "decoding"):
        if options := (record.get(name) or {}).get("options"):
            given = {key: "null" if value is None else value for key, value in options.items()}
            record[name] = {**record[name], "options": given}
    return record


def read_record(folder: Path) -> dict[str, Any]:
    """Read and verify the record of a run folder."""
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
    """Return what the rows of a run folder are sealed with: the hash of its record, without its folders.

    It is empty for a folder without a record.
    """
    if not (folder / RECORD).exists():
        return ""
    return sha256_json({key: value for key, value in read_record(folder).items() if key not in NOT_COMPARED})


def read_run(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read and verify the record and the manifest of a run folder."""
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
