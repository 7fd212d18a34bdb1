"""A calibration: observations, a table for each layer, and what was skipped; read and merged without a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reweigh.calibration.corpus import Corpus
from reweigh.errors import ArtifactError, CalibrationError, InputError
from reweigh.files.outputs import overwrites
from reweigh.job import PLACES, ROWS, Job
from reweigh.method.readouts import DMRR
from reweigh.method.references import rule_named
from reweigh.tables.observations import ImageObservations, Observations, collect
from reweigh.tables.store import file_name
from reweigh.tables.table import ReferenceTable

FEW = 10
"""A table of fewer tokens than this changes next to nothing, and says so."""


def record_of_job(about: dict[str, Any], corpus: Corpus, rule: str) -> dict[str, Any]:
    """Return the record of a calibration's job; what the model is called may differ between machines."""
    identity = {**about["identity"]}
    name = identity.pop("model_id")
    return {
        "about": {**about, "identity": identity},
        "images": len(corpus),
        "corpus": corpus.hash,
        "rule": rule,
        PLACES: {"model": name},
    }


@dataclass(frozen=True)
class Calibration:
    """The outcome of a calibration: observations, a table for each layer, and what was skipped."""

    observations: Observations
    tables: dict[int, ReferenceTable]
    about: dict[str, Any]
    skipped: list[dict[str, str]] = field(default_factory=list)

    @classmethod
    def of_job(cls, job: Job) -> Calibration:
        """Register the rows of a job; the tables of a finished one are in its folder, written if they are missing."""
        about = {**job.record["about"]}
        about["identity"] = {**about["identity"], "model_id": job.record[PLACES]["model"]}
        rows = job.rows()
        skipped = [
            {"key": row["image"], "name": row["name"], "reason": row["skipped"]}
            for row in rows
            if "skipped" in row
        ]
        if len(skipped) == len(rows):
            first = skipped[0]
            raise CalibrationError(
                f"none of the {len(rows)} images could be read, e.g. {first['name']}: {first['reason']}"
            )
        layers, path = about["layers"], "the calibration" if job.folder is None else job.folder / ROWS
        seen = [ImageObservations.of_row(row, layers, path) for row in rows if "skipped" not in row]
        observations = collect(layers, seen, readout=str(about.get("readout", DMRR)))
        if problem := observations.problem():
            raise ArtifactError(f"{path} cannot be right: {problem}", hint="calibrate again")
        tables = tables_of(observations, about, rule=job.record["rule"])
        if job.folder is not None and job.finished:
            tables = {layer: _kept(job.folder, table) for layer, table in tables.items()}
        return cls(observations, tables, about, sorted(skipped, key=lambda skip: skip["key"]))

    @classmethod
    def load(cls, folder: str | Path) -> Calibration:
        """Read a calibration, finished or not."""
        job = Job.read(folder)
        if not job.done:
            raise InputError(f"{folder} has no finished batch", hint="run the same `reweigh calibrate` again")
        return cls.of_job(job)

    def warnings(self) -> dict[int, str]:
        """Return warnings about valid but weak tables, by layer."""
        few = (
            "only {} tokens are registered, so the edit will hardly change anything: "
            f"{self.observations.token.size:,} observations of {self.observations.image_count} images are too few; "
            "calibrate on more images"
        )
        told = {
            layer: few.format(len(table)) if len(table) < FEW else table.weakness()
            for layer, table in self.tables.items()
        }
        return {layer: one for layer, one in told.items() if one is not None}


def _kept(folder: Path, table: ReferenceTable) -> ReferenceTable:
    """Return the table of a finished folder, which may have an operating point by now; write one that is missing."""
    path = folder / file_name(table.layer)
    if path.exists():
        return ReferenceTable.from_pretrained(path)
    table.save_pretrained(folder)
    return table


def require_free(folder: Path, layers: Iterable[int]) -> None:
    """Refuse to replace tables, before any work."""
    for layer in () if overwrites() else layers:
        if (there := folder / file_name(layer)).exists():
            raise InputError(
                f"{there} already exists and would be replaced",
                hint="calibrate into another folder, or replace it with --overwrite",
            )


def tables_of(
    observations: Observations, about: dict[str, Any], *, rule: str = "stable"
) -> dict[int, ReferenceTable]:
    """Register every layer of some observations under a rule; needs no model."""
    about = {
        **about,
        "rule": rule,
        "images": observations.image_count,
        "corpus": observations.corpus,
    }
    return {
        layer: ReferenceTable.build(layer, observations.register(layer, rule=rule_named(rule)), about)
        for layer in observations.layers
    }


def merge_shards(folders: Sequence[str | Path], out: str | Path) -> Calibration:
    """Put the shards of one calibration together; batches that are in none of them can still be calibrated there.

    The model's name may differ between machines; its content is compared.
    """
    if not folders:
        raise InputError("there is nothing to merge")
    shards = [Job.read(folder) for folder in folders]
    if not Job.is_in(Path(out)):
        require_free(Path(out), shards[0].record["about"]["layers"])
    with Job.open(out, shards[0].record, parts=shards[0].parts) as job:
        job.merge(shards)
        if missing := len(job.pending()):
            raise InputError(
                f"{missing} of {job.parts} batches are in none of these folders",
                hint=f"merge the missing shards into {out}, or finish it with `reweigh calibrate ... -o {out}`",
            )
        return Calibration.of_job(job)
