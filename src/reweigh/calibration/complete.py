"""Completing a calibration: have the batches observed that are not on disk yet, then register and save the whole.

Who observes is given, one model here or many elsewhere; batches may come back in any order. The engine hides behind
``Job``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from reweigh.calibration.ahead import build_ahead
from reweigh.calibration.corpus import Corpus, CorpusImage, open_corpus
from reweigh.calibration.prepare import prepare, read
from reweigh.calibration.result import MANIFEST, Calibration, tables_of
from reweigh.calibration.resume import LOCK, Work, finished
from reweigh.errors import CalibrationError
from reweigh.files.artifacts import only_one
from reweigh.method.readouts import DMRR
from reweigh.progress import bar
from reweigh.shards import Shard
from reweigh.tables.observations import ImageObservations, Observations, collect

Batches: TypeAlias = Mapping[int, Sequence[CorpusImage]]
Observed: TypeAlias = tuple[list[ImageObservations], list[dict[str, str]]]
"""What a batch gave: the observations of its images, and those that were left out, with their reasons."""

Observe: TypeAlias = Callable[[Batches], Generator[tuple[int, Observed], None, None]]
"""Observes numbered batches and gives each back once, in any order."""

OnSkip: TypeAlias = Callable[[str, str], None] | None


class Job(Protocol):
    """One calibration: what is read at which layers, and an engine that observes batches."""

    @property
    def batch_size(self) -> int:
        """Images decoded together."""

    def made_with(self) -> dict[str, Any]:
        """What every shard of this calibration shares, and every table carries."""

    def inputs(self, pictures: Sequence[Any]) -> dict[str, Any]:
        """The engine's inputs of some pictures; a picture it cannot take raises."""

    def observe(self, keys: Sequence[str], inputs: dict[str, Any]) -> list[ImageObservations]:
        """Decode one batch greedily and turn it into observations, one per row."""


def carry_out(
    job: Job,
    images: str | Path | Sequence[Any],
    *,
    out: str | Path | None,
    rule: str,
    shard: str = "1/1",
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Observe the images of a corpus, or of a shard of it, and register what they show; see ``calibrate``."""
    corpus = open_corpus(images, shard=Shard.parse(shard), batch_size=job.batch_size)
    folder = None if out is None else Path(out)
    return complete(
        partial(observe_batches, job),
        corpus,
        job.made_with(),
        rule=rule,
        out=folder,
        show=show,
        on_skip=on_skip,
    )


def observe_batches(job: Job, batches: Batches) -> Generator[tuple[int, Observed], None, None]:
    """Observe batches in their order with a job of this process; the next ones are read and built meanwhile."""
    ahead = build_ahead(batches.values(), read, lambda images: prepare(images, job.inputs))
    with closing(ahead):  # a run that ends early, whatever the reason, leaves no thread behind
        for number, batch in zip(batches, ahead, strict=True):
            yield number, (job.observe(batch.keys, batch.inputs) if batch.keys else [], batch.skipped)


def complete(
    observe: Observe,
    corpus: Corpus,
    made_with: dict[str, Any],
    *,
    rule: str,
    out: Path | None,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Finish the calibration of a corpus; ``made_with`` says how, and ``out`` keeps what was done before."""
    layers, readout = tuple(made_with["layers"]), str(made_with.get("readout", DMRR))
    asked = {"made_with": made_with, "corpus": corpus.hash, "rule": rule}
    work = None if out is None else Work(out, asked, layers, readout)
    if work is not None and (work.folder / MANIFEST).is_file():
        return finished(work, corpus)
    with ExitStack() as opened:
        if work is not None:
            opened.enter_context(only_one(work.folder, lock=LOCK))
            if (work.folder / MANIFEST).is_file():  # finished while the lock was waited for
                return finished(work, corpus)
            work.claim()
        batches = corpus.batches(made_with["batch_size"])
        walk = partial(_work_through, observe, batches, show=show, on_skip=on_skip)
        observations, skipped = _kept(walk, batches, work, layers, readout)
        if not observations.image_count:
            raise CalibrationError(
                f"none of the {len(corpus)} images could be read, e.g. {skipped[0]['name']}: {skipped[0]['reason']}"
            )
        skipped.sort(key=lambda skip: skip["key"])  # as merging shards does
        done = Calibration(observations, tables_of(observations, made_with, rule=rule), made_with, skipped)
        if work is not None:
            done.save(work.folder)
            work.tidy()
    return done


Walk: TypeAlias = Callable[[Collection[int], Callable[[int, Observed], None]], None]
"""Has the batches observed that are not among those done, and hands each outcome to a keeper."""


def _kept(
    walk: Walk,
    batches: Sequence[Sequence[CorpusImage]],
    work: Work | None,
    layers: tuple[int, ...],
    readout: str,
) -> tuple[Observations, list[dict[str, str]]]:
    """What all batches showed, with the images that were left out: those on disk, and the missing ones as they come."""
    parts = {
        number: work.read_part(number, images)
        for number, images in enumerate(batches)
        if work is not None and work.part(number).is_file()
    }

    def keep(number: int, observed: Observed) -> None:
        if work is not None:
            work.write_part(number, *observed)
        parts[number] = observed

    walk(parts, keep)
    found = [row for number in sorted(parts) for row in parts[number][0]]
    skipped = [skip for number in sorted(parts) for skip in parts[number][1]]
    return collect(layers, found, readout=readout), skipped


def _work_through(
    observe: Observe,
    batches: Sequence[Sequence[CorpusImage]],
    done: Collection[int],
    keep: Callable[[int, Observed], None],
    *,
    show: bool | None,
    on_skip: OnSkip,
) -> None:
    """Have the missing batches observed, and keep each as it comes."""
    missing = {number: images for number, images in enumerate(batches) if number not in done}
    total, left = (sum(map(len, some)) for some in (batches, missing.values()))
    with (
        closing(observe(missing)) as outcomes,  # whoever observes ends with us, whatever the reason
        bar("calibrating", total=total, done=total - left, unit="image", show=show) as progress,
    ):
        for number, observed in outcomes:
            keep(number, observed)
            for skip in observed[1]:
                if on_skip is not None:
                    on_skip(skip["name"], skip["reason"])
            progress.update(len(missing[number]))
