"""What a calibration keeps on disk while it runs, so that the same command resumes after a kill at any moment.

A folder belongs to one job: its settings are written first, then one sealed file per finished batch. Once the result is
complete, exactly these files are removed; files that this job did not write are never touched. Knows nothing about models.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reweigh.calibration.corpus import Corpus, CorpusImage
from reweigh.calibration.result import MANIFEST, OBSERVATIONS, Calibration
from reweigh.errors import ArtifactError, InputError, MismatchError
from reweigh.files.artifacts import drop_abandoned, only_one, require_fields, sha256_json
from reweigh.files.outputs import overwrites
from reweigh.files.seals import read_sealed, read_sealed_tensors, write_sealed, write_sealed_tensors
from reweigh.method.readouts import DMRR
from reweigh.provenance import first_difference
from reweigh.tables.folders import NUMBERS, PAGE
from reweigh.tables.observations import ImageObservations, Observations, collect, split

WORK = ".reweigh-work"
"""Folder of finished batches, until the whole run is finished."""

LOCK = f"{WORK}/.lock"
JOB = "job.json"
PARTS = "part-[0-9][0-9][0-9][0-9][0-9][0-9]*.safetensors"


@dataclass(frozen=True)
class Work:
    """The unfinished calibration of a folder.

    Attributes:
        folder: Where the result goes.
        asked: The settings of the job; every part carries their hash.
        layers: Blocks read.
        readout: What is observed.
    """

    folder: Path
    asked: dict[str, Any]
    layers: tuple[int, ...]
    readout: str = DMRR

    @property
    def job(self) -> str:
        """The hash of the settings, by which this job knows its own files."""
        return sha256_json(self.asked)

    def part(self, number: int) -> Path:
        """Return where one batch is kept."""
        return self.folder / WORK / f"part-{number:06d}.safetensors"

    def claim(self) -> None:
        """Make the folder this job's own, or refuse if another job began there or something would be replaced."""
        page = self.folder / WORK / JOB
        if page.is_file():
            _refuse_other(self.folder, read_sealed(page), self.asked)
            return
        for path in self._results():
            if path.exists():
                raise InputError(
                    f"{path} already exists and would be replaced", hint="calibrate into another folder"
                )
        write_sealed(page, self.asked)

    def write_part(self, number: int, rows: list[ImageObservations], unread: list[dict[str, str]]) -> None:
        """Write one finished batch to one file, so that it is whole or absent."""
        self.require_there()
        batch = collect(self.layers, rows, readout=self.readout)
        page = {"job": self.job, "number": number, "images": list(batch.images), "skipped": unread}
        write_sealed_tensors(self.part(number), batch.arrays(), page)

    def read_part(
        self, number: int, images: Sequence[CorpusImage]
    ) -> tuple[list[ImageObservations], list[dict[str, str]]]:
        """Read observations and skipped images of a finished batch; it must hold exactly these images."""
        path = self.part(number)
        try:
            arrays, page = read_sealed_tensors(path)
            require_fields(page, path, {"images": list, "skipped": list})
            batch = Observations.of_arrays(arrays, self.layers, page["images"], path, readout=self.readout)
            named = sorted([*page["images"], *(skip["key"] for skip in page["skipped"])])
            if (page.get("job"), page.get("number")) != (self.job, number):
                raise ArtifactError(f"{path} belongs to another calibration or another batch")
            if named != sorted(image.key for image in images):
                raise ArtifactError(f"{path} does not hold the images of its batch")
        except ArtifactError as error:
            raise ArtifactError(
                error.message, hint=f"remove {path.name}: the same command decodes its images again"
            ) from error
        return split(batch), page["skipped"]

    def require_there(self) -> None:
        """Refuse to continue if the folder was removed: what it held is lost."""
        if not (self.folder / WORK / JOB).is_file():
            raise ArtifactError(
                f"{self.folder / WORK / JOB} is gone: the folder was removed while the calibration was writing to it",
                hint="run the same command again",
            )

    def has_begun(self) -> bool:
        """Tell whether the folder holds a stopped run of this job."""
        try:
            return read_sealed(self.folder / WORK / JOB) == self.asked
        except ArtifactError:
            return False

    def tidy(self) -> None:
        """Remove this job's own files, each proven by its seal; the result and files of others stay."""
        work = self.folder / WORK
        if not self.has_begun():
            return
        for path in work.glob(PARTS):
            if self._is_own(path):
                path.unlink(missing_ok=True)
        for folder in {work, *(path.parent for path in self._results())}:
            drop_abandoned(folder)
        for path in (work / JOB, self.folder / LOCK):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it holds other files
            work.rmdir()

    def _results(self) -> list[Path]:
        tables = [self.folder / f"layer-{layer}" / name for layer in self.layers for name in (PAGE, NUMBERS)]
        return [self.folder / OBSERVATIONS, self.folder / MANIFEST, *tables]

    def _is_own(self, part: Path) -> bool:
        try:
            return read_sealed_tensors(part)[1].get("job") == self.job
        except ArtifactError:
            return False


def require_free(folder: Path) -> None:
    """Refuse a folder that another process calibrates into; cheap enough to do before a model is loaded."""
    if (folder / LOCK).is_file():
        with only_one(folder, lock=LOCK):
            pass


def writing(done: Calibration, folder: Path) -> Work:
    """Return the work of writing a merged calibration; the same command resumes it after a stop."""
    asked = {"made_with": done.made_with, "images": done.observations.corpus, "rule": done.rule}
    return Work(folder, asked, tuple(done.tables))


def save_result(done: Calibration, out: Path, *, sources: Sequence[Path]) -> None:
    """Save a calibration that was made from others; replace anything but itself only with --overwrite."""
    if out.resolve() in [source.resolve() for source in sources]:
        raise InputError(f"{out} is also an input and would be overwritten", hint="write into another folder")
    if overwrites():
        require_free(out)
        done.save(out)
        return
    work = writing(done, out)
    if not work.has_begun():
        if (there := _found_in(out, done)) is not None:
            hint = "write into another folder, or replace what is there with --overwrite"
            raise InputError(f"{out} holds {there}", hint=hint)
        if (out / MANIFEST).is_file():  # the same one
            return
    with only_one(out, lock=LOCK):
        work.claim()
        done.save(out)
        work.tidy()


def _found_in(out: Path, new: Calibration) -> str | None:
    """Say what a folder contains, if it is anything but the calibration to be written."""
    names = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if WORK in names and not (out / WORK / JOB).exists():  # stopped before anything was written
        names.remove(WORK)
    if MANIFEST not in names:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        return f"{', '.join(names[:3])}{more}" if names else None
    try:
        old = Calibration.load(out)
    except ArtifactError as error:
        return f"a calibration that cannot be read ({error.message})"
    if old.equals(new):
        return None
    return f"another calibration: {old.observations.image_count} images, layers {', '.join(map(str, old.tables))}"


def finished(work: Work, corpus: Corpus) -> Calibration:
    """Load the finished calibration of a folder; refuse one made with other settings or images."""
    done = Calibration.load(work.folder)
    keys, skipped = {image.key for image in corpus.images}, {skip["key"] for skip in done.skipped}
    is_same = skipped <= keys and keys - skipped == set(done.observations.images)
    there = {
        "made_with": done.made_with,
        "corpus": corpus.hash if is_same else "other images",
        "rule": done.rule,
    }
    _refuse_other(work.folder, there, work.asked)
    work.tidy()  # a run may have been killed after its last file and before this
    return done


def _refuse_other(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    found = first_difference(there, asked)
    if found is None:
        return
    raise MismatchError(
        "{} holds a calibration with another {}: {} there, {} asked for".format(
            folder, found.key, *found.words
        ),
        hint="choose another folder, or remove that one",
    )
