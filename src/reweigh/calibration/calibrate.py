"""Calibrate: run the unmodified model greedily on unlabeled images and keep the evidence of its candidates.

Work is cut into fixed batches, and each finished batch is one file: a run killed at any moment resumes there and ends with
the same bytes. All layers are read in one prefill. On Ray, actors observe the batches; the driver loads no model, writes
the same files and finishes the run, so one machine can resume a run on Ray and the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.calibration.corpus import CorpusImage
from reweigh.calibration.job import CalibrationSettings, open_job, outside_engine
from reweigh.calibration.loop import Job, Observed, OnSkip, observe_batches, run, run_job
from reweigh.calibration.result import Calibration
from reweigh.cluster import Cluster, Worker, ray_pool
from reweigh.families.prompts import DESCRIBE
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR
from reweigh.text import Template


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
    on_skip: Callable[[str, str], None] | None = None,
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
        shard: Part of the images, as i/n; ``merge_calibrations`` of all parts gives the bytes of the whole.
        show: Show a progress bar; by default when a person looks.
        on_skip: Called with the name of each image that could not be read, and why.

    Raises:
        CalibrationError: No image could be read, the processor failed on some (they are named), or b0 is not positive.
        MismatchError: ``out`` holds a calibration with other settings.

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
    job = open_job(model, processor, settings)
    return run_job(job, images, settings, out=out, show=show, on_skip=on_skip)


def open_calibrator(
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
    job: Job
    if engine is not None:
        job = outside_engine("vllm")(name, settings, name=called, engine=engine)
    else:
        from reweigh.families.load import load as load_model

        model, processor = load_model(name, **load)
        model.name_or_path = called
        job = open_job(model, processor, settings)

    def observe(batch: Sequence[CorpusImage]) -> Observed:
        """Observe one batch; its files must have the same content here as on the driver."""
        [(_, observed)] = observe_batches(job, {0: batch})
        return observed

    return job.made_with(), observe


def calibrate_on(
    cluster: Cluster,
    arguments: dict[str, Any],
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: Path,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with the actors of a cluster; ``arguments`` are ``open_calibrator``'s.

    The result is, byte for byte, that of one machine with the same settings, packages and kind of device.
    """
    # actors take any batch: shard and rule are the driver's, and the same actors serve every shard
    given = replace(settings, shard="1/1", rule="stable")
    with ray_pool(cluster, open_calibrator, {**arguments, "settings": given}) as pool:
        return run(
            lambda batches: pool.unordered(batches.items()),
            pool.described,
            images,
            settings,
            out=out,
            on_skip=on_skip,
        )
