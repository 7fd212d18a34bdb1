"""What a run's answers depend on, kept as the record of its job; names of the files of a scored run."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import Any

from reweigh.errors import InputError
from reweigh.files.artifacts import sha256_file, sha256_json
from reweigh.files.outputs import claim
from reweigh.job import PLACES, ROWS, Job
from reweigh.lab.tasks.base import Record
from reweigh.lab.tasks.data import find_files
from reweigh.provenance import environment

RESPONSES = "responses.jsonl"
"""Copy of the responses in a folder of scores that is not a run."""
ANSWERS = ROWS
ITEMS, RESULTS, REPORT = "items.jsonl", "results.json", "report.html"


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
    names = sorted({record.image for record in records})
    return {
        "benchmark": dict(benchmark),
        "model": dict(model),
        "decoding": spelled_out(decoding),
        "seed": seed,
        "records": len(records),
        "questions_sha256": sha256_json([asdict(record) for record in records]),
        "prompts_sha256": sha256_json(sorted({record.prompt for record in records})),
        "images_sha256": sha256_json({name: sha256_file(find_image(images, name)) for name in names}),
        "environment": environment(),
        PLACES: dict(folders),
    }


def spelled_out(decoding: Mapping[str, Any]) -> dict[str, Any]:
    """Tell an option that was set to None from one that was not given: its default may be another value."""
    options = {
        name: "null" if value is None else value for name, value in decoding.get("options", {}).items()
    }
    return {**decoding, "options": options} if options else dict(decoding)


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


def claim_scores(folder: Path) -> None:
    """Refuse a folder in which other files have the names that scoring writes."""
    names = [ITEMS, RESULTS, REPORT, *([] if Job.is_in(folder) else [RESPONSES])]
    claim([folder / name for name in names])
