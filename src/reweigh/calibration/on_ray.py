"""Calibration on Ray: actors observe batches, the driver keeps each as a part of the run and finishes it.

The driver loads no model. Its folder is that of a run on one machine, part for part, so either resumes the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reweigh.calibration.corpus import CorpusImage
from reweigh.calibration.loop import Job, Observed, OnSkip, observe_batches, run
from reweigh.calibration.result import Calibration
from reweigh.calibration.settings import CalibrationSettings
from reweigh.cluster import Cluster, Worker, ray_pool


class Calibrator:
    """Observes batches with a job inside an actor."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def describe(self) -> dict[str, Any]:
        """What every table of this calibration carries."""
        return self.job.made_with()

    def work(self, task: Sequence[CorpusImage]) -> Observed:
        """Observe one batch, whose files must have the same content here as on the driver."""
        [(_, observed)] = observe_batches(self.job, {0: task})
        return observed


def calibrator(
    *, name: str, load: Mapping[str, Any], called: str, settings: CalibrationSettings
) -> Calibrator:
    """Make a worker that loads a model with transformers; tables call the model what it is ``called``."""
    from reweigh.calibration.job import open_job
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    return Calibrator(open_job(model, processor, settings))


def vllm_calibrator(
    *, name: str, called: str, engine: Mapping[str, Any], settings: CalibrationSettings
) -> Calibrator:
    """Make a worker whose model vLLM loads, with the arguments ``engine``."""
    from reweigh.calibration.vllm import open_vllm_job

    return Calibrator(open_vllm_job(name, settings, name=called, engine=engine))


def calibrate_on(
    cluster: Cluster,
    make: Callable[..., Worker],
    arguments: dict[str, Any],
    images: str | Path | Sequence[Any],
    settings: CalibrationSettings,
    *,
    out: Path,
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with the actors of a cluster; ``make(**arguments, settings=settings)`` is the worker in each.

    The result is, byte for byte, that of one machine with the same settings, packages and kind of device.
    """
    # actors take any batch: shard and rule are the driver's, and the same actors serve every shard
    given = replace(settings, shard="1/1", rule="stable")
    with ray_pool(cluster, make, {**arguments, "settings": given}) as pool:
        return run(pool.unordered, pool.described, images, settings, out=out, show=show, on_skip=on_skip)
