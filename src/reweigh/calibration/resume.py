"""What a calibration keeps on disk while it runs, so that the same command goes on after a kill at any moment.

A folder belongs to one job: its settings are written first, then one file per finished batch, and all of it goes when
the result is whole. Knows nothing of models.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.artifacts import drop_leftovers, read_json, read_tensors, write_json, write_tensors
from reweigh.calibration.corpus import Corpus
from reweigh.calibration.result import Calibration
from reweigh.errors import MismatchError
from reweigh.method.register.observations import ARRAYS, ImageObservations, Observations, collect, split
from reweigh.provenance import first_difference

WORK = ".work"
"""Folder of the finished batches of a run that is not finished itself."""


def part_path(folder: Path, number: int) -> Path:
    """Where one batch is kept."""
    return folder / WORK / f"part-{number:06d}.safetensors"


def write_part(
    path: Path, layers: Sequence[int], rows: list[ImageObservations], unread: list[dict[str, str]]
) -> None:
    """Keep one finished batch in one file: numbers, keys and skipped images together, so that it is whole or absent."""
    batch = collect(layers, rows)
    page = json.dumps({"images": batch.images, "skipped": unread}).encode()
    arrays = {name: getattr(batch, name) for name in ARRAYS}
    write_tensors(path, {**arrays, "page": np.frombuffer(page, dtype=np.uint8)})


def read_part(path: Path, layers: Sequence[int]) -> tuple[list[ImageObservations], list[dict[str, str]]]:
    """The observations and the skipped images of one finished batch."""
    arrays = read_tensors(path)
    page = json.loads(arrays["page"].tobytes())
    batch = Observations(tuple(layers), tuple(page["images"]), *(arrays[name] for name in ARRAYS))
    return split(batch), page["skipped"]


def claim(folder: Path, job: dict[str, Any]) -> None:
    """Make the folder this job's own, or refuse if another job began there."""
    page = folder / WORK / "job.json"
    if page.is_file():
        _refuse_other(folder, read_json(page), job)
    else:
        write_json(page, job)


def finished(folder: Path, asked: dict[str, Any], corpus: Corpus) -> Calibration:
    """The finished calibration of a folder, refused if it was made with other settings or images."""
    done = Calibration.load(folder)
    keys = [*done.observations.images, *(skip["key"] for skip in done.skipped)]
    expected = corpus.hash if corpus.consists_of(keys) else "other images"
    _refuse_other(folder, {"made_with": done.made_with, "corpus": expected, "rule": done.rule}, asked)
    tidy(folder)  # a run may have been killed after its last file and before this
    return done


def tidy(folder: Path) -> None:
    """Leave nothing but the result."""
    shutil.rmtree(folder / WORK, ignore_errors=True)
    drop_leftovers(folder)


def _refuse_other(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    found = first_difference(there, asked, absent_is_none=True)
    if found is not None:
        raise MismatchError(
            "{} holds a calibration with another {}: {!r} there, {!r} asked for".format(folder, *found),
            hint="choose another folder, or remove that one",
        )
