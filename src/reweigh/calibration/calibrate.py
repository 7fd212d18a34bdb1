"""Calibration: run the unmodified model greedily on unlabeled images and keep what its candidates' evidence was.

Work is cut into fixed batches; each finished batch is one file, so that a run killed at any moment resumes from there
and ends with the same bytes. One run serves several layers: all are read in the same prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reweigh.calibration.job import open_job
from reweigh.calibration.loop import run_job
from reweigh.calibration.result import Calibration
from reweigh.calibration.settings import CalibrationSettings
from reweigh.families.prompts import DESCRIBE
from reweigh.method.lens import CHUNK
from reweigh.method.readouts import DMRR


def calibrate(
    model: Any,
    processor: Any,
    images: str | Path | Sequence[Any],
    *,
    layers: Sequence[int] | None = None,
    out: str | Path | None = None,
    prompt: str = DESCRIBE,
    template: str | None = None,
    max_new_tokens: int = 512,
    batch_size: int = 1,
    dtype: str = "native",
    chunk: int = CHUNK,
    kernel: str = "auto",
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

    Example:
        >>> import reweigh
        >>> from reweigh import world
        >>> from reweigh.families.load import load
        >>> from reweigh.world.render import render
        >>> from reweigh.world.scenes import scene
        >>> model, processor = load(world.path())
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
        kernel=kernel,
        readout=readout,
        rule=rule,
        shard=shard,
    )
    job = open_job(model, processor, settings)
    return run_job(job, images, settings, out=out, show=show, on_skip=on_skip)
