"""Calibrate: run the unmodified model greedily on unlabeled images and keep the evidence of its candidates.

The images are cut into batches, which are the parts of a ``Job``: a run killed at any moment resumes there and ends with the
same tables, shards take parts of their own, and actors of Ray observe the same parts for a driver that loads no model. All
layers are read in one prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from reweigh.calibration.ahead import build_ahead, prepare, read
from reweigh.calibration.calibrators import Calibrator, open_calibrator, outside_engine
from reweigh.calibration.corpus import CorpusImage, open_corpus
from reweigh.calibration.result import Calibration, record_of_job, require_free
from reweigh.calibration.settings import CalibrationSettings
from reweigh.cluster import Cluster, Worker, ray_pool
from reweigh.errors import InputError
from reweigh.families.prompts import DESCRIBE
from reweigh.job import Job
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.progress import bar
from reweigh.text import Template

Batches: TypeAlias = Mapping[int, Sequence[CorpusImage]]
Rows: TypeAlias = list[dict[str, Any]]
"""One row for each image of a batch: what it showed, or why it was skipped."""

OnSkip: TypeAlias = Callable[[str, str], None] | None


def calibrate(
    model: Any,
    processor: Any,
    images: str | Path | Sequence[Any],
    *,
    layers: Sequence[int] | None = None,
    out: str | Path | None = None,
    prompt: str = DESCRIBE,
    template: Template | None = None,
    max_new_tokens: int = 512,
    batch_size: int = 1,
    dtype: str = "native",
    chunk: int = CHUNK,
    rule: str = "stable",
    readout: str = DMRR,
    shard: str = "1/1",
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Learn token references from unlabeled images.

    Args:
        images: A folder, a manifest file, or a list of paths, pictures or ``(name, picture)`` pairs.
        layers: Blocks to read, all in one run; -1 is the last. If not given, the paper's for this model, else the last.
        out: Folder for the result. The same call resumes an interrupted run there, and returns a finished one.
        batch_size: Images decoded together; part of the record, since padding can change rounding.
        dtype: "native" ranks the head's own logits, "float32" upcasts them first.
        rule: "stable" (the paper's), or "count-N".
        readout: How logits become evidence: the method's "dmrr", or prob, logprob, zscore, zprob for comparison.
        shard: Which batches to observe, as i/n; ``merge_shards`` puts the folders of all n together.
        show: Show a progress bar; by default when a person looks.
        on_skip: Called with the name of each image that could not be read, and why.

    Raises:
        CalibrationError: No image could be read, the processor failed on some (they are named), or b0 is not positive.
        MismatchError: ``out`` contains a calibration with other settings.

    Examples:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = reweigh.load(world.path())
        >>> pictures = [render(scene("calibration", number), 112) for number in range(3)]
        >>> made = reweigh.calibrate(model, processor, pictures, max_new_tokens=8, show=False)
        >>> sorted(made.tables)
        [2]
    """
    settings = CalibrationSettings(
        layers=None if layers is None else tuple(layers),
        prompt=prompt,
        template=template,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        dtype=dtype,
        chunk=chunk,
        readout=readout,
        rule=rule,
        shard=shard,
    )
    calibrator = open_calibrator(model, processor, settings)
    return calibrate_with(calibrator, images, settings, out=out, show=show, on_skip=on_skip)


def calibrate_with(
    calibrator: Calibrator,
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: str | Path | None,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with a model in this process."""
    observe, about = partial(_observe, calibrator), calibrator.about()
    return _run(observe, about, images, settings, out=out, show=show, on_skip=on_skip)


def calibrate_on(
    cluster: Cluster,
    arguments: Mapping[str, Any],
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: str | Path,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with the actors of a Ray cluster; ``arguments`` are ``open_worker``'s."""
    given = replace(settings, shard="1/1", rule="stable")  # theirs are any batches
    with ray_pool(cluster, open_worker, {**arguments, "settings": given}) as pool:
        about = pool.described
        observe = lambda batches: pool.unordered(batches.items())  # noqa: E731
        return _run(observe, about, images, settings, out=out, on_skip=on_skip)


def open_worker(
    *,
    name: str,
    called: str,
    load: Mapping[str, Any],
    settings: CalibrationSettings,
    engine: Mapping[str, Any] | None = None,
) -> Worker:
    """Open a worker that loads a model and observes batches; tables call the model what it is ``called``.

    Args:
        load: Arguments of ``families.load.load``.
        engine: Arguments of vLLM, which then loads the model instead.
    """
    calibrator: Calibrator
    if engine is not None:
        calibrator = outside_engine("vllm")(name, settings, name=called, engine=engine)
    else:
        from reweigh.families.load import load as load_model

        model, processor = load_model(name, **load)
        model.name_or_path = called
        calibrator = open_calibrator(model, processor, settings)
    return calibrator.about(), lambda batch: next(_observe(calibrator, {0: batch}))[1]


def _run(
    observe: Callable[[Batches], Iterator[tuple[int, Rows]]],
    about: dict[str, Any],
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: str | Path | None,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Observe the parts that are not in the job yet, each kept as it comes, then register."""
    corpus = open_corpus(images)
    batches = corpus.batches(settings.batch_size)
    if out is not None and not Job.is_in(Path(out)):
        require_free(Path(out), about["layers"])
    record = record_of_job(about, corpus, settings.rule)
    with Job.open(out, record, parts=len(batches)) as job:
        due = {part: batches[part] for part in job.pending(settings.shard)}
        if not due and not job.done:
            raise InputError(
                f"shard {settings.shard} holds no image: there are {len(corpus)} images, "
                f"{settings.batch_size} at a time",
                hint="cut the work into fewer shards",
            )
        done, left = (sum(len(batches[part]) for part in parts) for parts in (job.done, due))
        with (
            closing(observe(due)) as outcomes,  # type: ignore[type-var]  # stop observing when this ends
            bar("calibrating", total=done + left, done=done, unit="image", show=show) as progress,
        ):
            for part, rows in outcomes:
                job.append(part, rows)
                for row in rows:
                    if "skipped" in row and on_skip is not None:
                        on_skip(row["name"], row["skipped"])
                progress.update(len(rows))
        return Calibration.of_job(job)


def _observe(calibrator: Calibrator, batches: Batches) -> Iterator[tuple[int, Rows]]:
    """Observe batches in order with a model in this process, preparing the next one meanwhile."""
    ahead = build_ahead(batches.values(), read, lambda images: prepare(images, calibrator.inputs))
    with closing(ahead):  # a run that ends early, whatever the reason, leaves no thread behind
        for (part, batch), ready in zip(batches.items(), ahead, strict=True):
            seen = calibrator.observe(ready.keys, ready.inputs) if ready.keys else []
            rows = {one.key: one.to_row() for one in seen}
            rows |= {
                skip["key"]: {"image": skip["key"], "name": skip["name"], "skipped": skip["reason"]}
                for skip in ready.skipped
            }
            yield part, [rows[image.key] for image in batch]
