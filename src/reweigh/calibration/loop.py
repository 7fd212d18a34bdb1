"""The loop of a calibration: observe the batches that are not on disk yet, then register and save the whole.

One model here observes them, or the actors of a cluster; batches may come back in any order. The engine hides behind
``Job``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from reweigh.calibration.corpus import Corpus, CorpusImage, open_corpus
from reweigh.calibration.prepare import build_ahead, prepare, read
from reweigh.calibration.result import MANIFEST, Calibration, tables_of
from reweigh.calibration.resume import LOCK, Work, finished
from reweigh.calibration.settings import CalibrationSettings
from reweigh.errors import CalibrationError
from reweigh.files.artifacts import only_one
from reweigh.method.readouts import DMRR
from reweigh.progress import bar
from reweigh.shards import Shard
from reweigh.tables.observations import ImageObservations, collect

Batches: TypeAlias = Mapping[int, Sequence[CorpusImage]]
Observed: TypeAlias = tuple[list[ImageObservations], list[dict[str, str]]]
"""What a batch gave: the observations of its images, and the images that were left out, with their reasons."""

Observe: TypeAlias = Callable[[Batches], Generator[tuple[int, Observed], None, None]]
"""Observes numbered batches and gives each back once, in any order."""

OnSkip: TypeAlias = Callable[[str, str], None] | None


class Job(Protocol):
    """Settings tied to a model: an engine that observes batches."""

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """The engine's inputs of some pictures; a picture it cannot take raises."""

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
    """Calibrate with a model of this process."""
    observe, made_with = partial(observe_batches, job), job.made_with()
    return run(observe, made_with, images, settings, out=out, show=show, on_skip=on_skip)


def observe_batches(job: Job, batches: Batches) -> Generator[tuple[int, Observed], None, None]:
    """Observe batches in their order with a job of this process, reading and building the next ones meanwhile."""
    ahead = build_ahead(batches.values(), read, lambda images: prepare(images, job.inputs))
    with closing(ahead):  # a run that ends early, whatever the reason, leaves no thread behind
        for number, batch in zip(batches, ahead, strict=True):
            yield number, (job.observe(batch.keys, batch.inputs) if batch.keys else [], batch.skipped)


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
    """Calibrate on the images of a corpus, or of a shard of it; ``out`` keeps what was done before."""
    corpus = open_corpus(images, shard=Shard.parse(settings.shard), batch_size=settings.batch_size)
    rule = settings.rule
    if out is None:
        return _calibrate(observe, corpus, made_with, rule, None, show=show, on_skip=on_skip)
    asked = {"made_with": made_with, "corpus": corpus.hash, "rule": rule}
    work = Work(Path(out), asked, tuple(made_with["layers"]), str(made_with.get("readout", DMRR)))
    if (work.folder / MANIFEST).is_file():
        return finished(work, corpus)
    with only_one(work.folder, lock=LOCK):
        if (work.folder / MANIFEST).is_file():  # finished while this process waited for the lock
            return finished(work, corpus)
        work.claim()
        done = _calibrate(observe, corpus, made_with, rule, work, show=show, on_skip=on_skip)
        work.require_there()
        done.save(work.folder)
        work.require_there()
        work.tidy()
        if not (work.folder / MANIFEST).is_file():
            raise CalibrationError(f"{work.folder / MANIFEST} is gone", hint="run the same command again")
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
