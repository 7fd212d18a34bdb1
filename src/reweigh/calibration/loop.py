"""The loop of a calibration: observe the batches that are not on disk yet, then register and save the whole.

A model in this process (a ``Job``) or the actors of a cluster observe them, in any order. Threads read images and build
inputs ahead of the model. An image that cannot be used is skipped, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from reweigh.calibration.corpus import Corpus, CorpusImage, open_corpus
from reweigh.calibration.job import CalibrationSettings
from reweigh.calibration.result import MANIFEST, Calibration, tables_of
from reweigh.calibration.resume import LOCK, Work, finished
from reweigh.errors import CalibrationError, ImageError, ReweighError
from reweigh.files.artifacts import only_one
from reweigh.method.readouts import DMRR
from reweigh.progress import bar
from reweigh.shards import Shard
from reweigh.tables.observations import ImageObservations, collect

if TYPE_CHECKING:
    from PIL.Image import Image

Item = TypeVar("Item")
Read = TypeVar("Read")
Built = TypeVar("Built")

Batches: TypeAlias = Mapping[int, Sequence[CorpusImage]]
Observed: TypeAlias = tuple[list[ImageObservations], list[dict[str, str]]]
"""The result of a batch: the observations of its images, and the skipped images with their reasons."""

Observe: TypeAlias = Callable[[Batches], Generator[tuple[int, Observed], None, None]]
"""Observes numbered batches and returns each once, in any order."""

OnSkip: TypeAlias = Callable[[str, str], None] | None

READERS = min(8, os.cpu_count() or 1)
"""Reading threads; their number affects speed only."""


class Job(Protocol):
    """Settings tied to a model: an engine that observes batches."""

    def made_with(self) -> dict[str, Any]:
        """Return what every shard of this calibration shares, and every table carries."""

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """Build the engine's inputs for some pictures; raise for a picture it cannot take."""

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""


def run_job(
    job: Job,
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: str | Path | None,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with a model in this process."""
    observe, made_with = partial(observe_batches, job), job.made_with()
    return run(observe, made_with, images, settings, out=out, show=show, on_skip=on_skip)


def run(
    observe: Observe,
    made_with: dict[str, Any],
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: str | Path | None,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate on a corpus or a shard of it; a stopped run in ``out`` is resumed."""
    corpus = open_corpus(images, shard=Shard.parse(settings.shard), batch_size=settings.batch_size)
    calibrate = partial(_calibrate, observe, corpus, made_with, settings.rule, show=show, on_skip=on_skip)
    if out is None:
        return calibrate(None)
    asked = {"made_with": made_with, "corpus": corpus.hash, "rule": settings.rule}
    work = Work(Path(out), asked, tuple(made_with["layers"]), str(made_with.get("readout", DMRR)))
    manifest = work.folder / MANIFEST
    if manifest.is_file():
        return finished(work, corpus)
    with only_one(work.folder, lock=LOCK):
        if manifest.is_file():  # finished while this process waited for the lock
            return finished(work, corpus)
        work.claim()
        done = calibrate(work)
        work.require_there()
        done.save(work.folder)
        work.require_there()
        work.tidy()
        if not manifest.is_file():
            raise CalibrationError(f"{manifest} is gone", hint="run the same command again")
    return done


def _calibrate(
    observe: Observe,
    corpus: Corpus,
    made_with: dict[str, Any],
    rule: str,
    work: Work | None,
    *,
    show: bool | None,
    on_skip: OnSkip,
) -> Calibration:
    """Read finished batches, observe the missing ones and keep each as it comes, then register."""
    batches = dict(enumerate(corpus.batches(made_with["batch_size"])))
    parts: dict[int, Observed] = {}
    if work is not None:
        there = (number for number in batches if work.part(number).is_file())
        parts = {number: work.read_part(number, batches[number]) for number in there}
    missing = {number: images for number, images in batches.items() if number not in parts}
    left = sum(map(len, missing.values()))
    with (
        closing(observe(missing)) as outcomes,  # stop observing when this ends, for whatever reason
        bar("calibrating", total=len(corpus), done=len(corpus) - left, unit="image", show=show) as progress,
    ):
        for number, observed in outcomes:
            if work is not None:
                work.write_part(number, *observed)
            parts[number] = observed
            for skip in observed[1]:
                if on_skip is not None:
                    on_skip(skip["name"], skip["reason"])
            progress.update(len(missing[number]))
    rows = [row for number in batches for row in parts[number][0]]
    skipped = [skip for number in batches for skip in parts[number][1]]
    if not rows:
        raise CalibrationError(
            f"none of the {len(corpus)} images could be read, e.g. {skipped[0]['name']}: {skipped[0]['reason']}"
        )
    observations = collect(made_with["layers"], rows, readout=str(made_with.get("readout", DMRR)))
    skipped.sort(key=lambda skip: skip["key"])  # as merging shards does
    return Calibration(observations, tables_of(observations, made_with, rule=rule), made_with, skipped)


def observe_batches(job: Job, batches: Batches) -> Generator[tuple[int, Observed], None, None]:
    """Observe batches in order with a job in this process, preparing the next one meanwhile."""
    ahead = build_ahead(batches.values(), read, lambda images: prepare(images, job.inputs))
    with closing(ahead):  # a run that ends early, whatever the reason, leaves no thread behind
        for number, batch in zip(batches, ahead, strict=True):
            yield number, (job.observe(batch.keys, batch.inputs) if batch.keys else [], batch.skipped)


def build_ahead(
    batches: Iterable[Sequence[Item]], read: Callable[[Item], Read], build: Callable[[list[Read]], Built]
) -> Generator[Built, None, None]:
    """Yield ``build([read(item) for item in batch])`` for each batch in order, preparing the next one meanwhile.

    An error is raised in its batch's turn. Close the generator to end its threads: pending work is dropped, running work
    is waited for.
    """
    readers = ThreadPoolExecutor(READERS, thread_name_prefix="reweigh-read")
    builder = ThreadPoolExecutor(1, thread_name_prefix="reweigh-build")
    ahead: Future[Built] | None = None
    try:
        for batch in batches:
            ready, ahead = ahead, builder.submit(lambda own: build(list(readers.map(read, own))), batch)
            if ready is not None:
                yield ready.result()
        if ahead is not None:
            yield ahead.result()
    finally:
        readers.shutdown(wait=False, cancel_futures=True)  # first, so that a build waiting for them ends
        builder.shutdown(wait=True, cancel_futures=True)
        readers.shutdown(wait=True)


@dataclass(frozen=True)
class ReadImage:
    """An image of the corpus with its picture, or the reason why it could not be read."""

    image: CorpusImage
    picture: Image | None
    reason: str = ""

    def skip(self, reason: str) -> dict[str, str]:
        """Return the record of a skipped image."""
        return {"key": self.image.key, "name": self.image.name, "reason": reason}


@dataclass(frozen=True)
class Prepared:
    """The inputs of a batch, the key of each row, and the skipped images."""

    keys: list[str]
    inputs: dict[str, Any]
    skipped: list[dict[str, str]]


def read(image: CorpusImage) -> ReadImage:
    """Read one image; an unreadable one is returned with the reason."""
    try:
        return ReadImage(image, image.read())
    except ImageError as error:
        return ReadImage(image, None, error.message)


def prepare(batch: Sequence[ReadImage], build: Callable[[Sequence[Any]], dict[str, Any]]) -> Prepared:
    """Build the inputs of the pictures that could be read; skip those that ``build`` refuses even alone.

    Raises:
        CalibrationError: ``build`` failed in another way; the batch's images are named.
    """
    rows = [one for one in batch if one.picture is not None]
    skipped = [one.skip(one.reason) for one in batch if one.picture is None]
    inputs: dict[str, Any] = {}
    try:
        while rows:
            try:
                inputs = build([one.picture for one in rows])
                break
            except (ValueError, ArithmeticError) as error:
                refused = {} if isinstance(error, ReweighError) else _refused(rows, build)
                if not refused:
                    raise
            skipped += [one.skip(refused[one.image.key]) for one in rows if one.image.key in refused]
            rows = [one for one in rows if one.image.key not in refused]
    except ReweighError:
        raise
    except Exception as error:  # a processor may raise anything
        names = ", ".join(one.image.name for one in rows)
        raise CalibrationError(
            f"the processor could not make inputs of {names} ({type(error).__name__}: {error})",
            hint="is it this model's processor? If one image is at fault, calibrate without it, in another output folder",
        ) from error
    return Prepared([one.image.key for one in rows], inputs, skipped)


def _refused(rows: Sequence[ReadImage], build: Callable[[Sequence[Any]], dict[str, Any]]) -> dict[str, str]:
    """Return the pictures that the processor refuses one by one (some refuse extreme shapes), with the reasons."""
    found = {}
    for one in rows:
        try:
            build([one.picture])
        except (ValueError, ArithmeticError) as error:
            size = one.picture.size if one.picture is not None else None
            found[one.image.key] = f"the model's processor refuses a picture of {size} pixels ({error})"
    return found
