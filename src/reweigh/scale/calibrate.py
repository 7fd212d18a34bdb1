"""Calibration on a cluster: actors observe batches, the driver keeps each as a part of the run and finishes it.

The driver loads no model. Its folder is the same as that of a run on one machine, part for part, so that either goes on
where the other was stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.calibration.complete import Batches, Job, Observed, OnSkip, complete, observe_batches
from reweigh.calibration.corpus import CorpusImage, open_corpus
from reweigh.calibration.result import Calibration
from reweigh.method.references import rule_named
from reweigh.scale.crew import Crew, work_through
from reweigh.scale.ray_crew import Cluster, Worker, ray_crew
from reweigh.shards import Shard


class Calibrator:
    """Observes batches with a job inside an actor."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def describe(self) -> dict[str, Any]:
        """What every table of this calibration carries."""
        return self.job.made_with()

    def work(self, task: Sequence[CorpusImage]) -> Observed:
        """Observe one batch, whose files must be here what they are where the driver is."""
        [(_, observed)] = observe_batches(self.job, {0: task})
        return observed


def calibrator(*, name: str, load: Mapping[str, Any], called: str, settings: Mapping[str, Any]) -> Calibrator:
    """Make a worker that loads a model with transformers; tables call the model what it is ``called``."""
    from reweigh.calibration.job import open_job
    from reweigh.families.load import load as load_model

    model, processor = load_model(name, **load)
    model.name_or_path = called
    return Calibrator(open_job(model, processor, **settings))


def vllm_calibrator(
    *, name: str, called: str, engine: Mapping[str, Any], settings: Mapping[str, Any]
) -> Calibrator:
    """Make a worker whose model vLLM loads, with the arguments ``engine``."""
    from reweigh.calibration.vllm import open_vllm_job

    return Calibrator(open_vllm_job(name, name=called, engine=engine, **settings))


def calibrate_on(
    cluster: Cluster,
    make: Callable[..., Worker],
    arguments: dict[str, Any],
    images: str | Path | Sequence[Any],
    *,
    out: Path,
    rule: str = "stable",
    shard: str = "1/1",
    show: bool | None = None,
    on_skip: OnSkip = None,
) -> Calibration:
    """Calibrate with the actors of a cluster; ``make(**arguments)`` is the worker in each, see above.

    The result is, byte for byte, that of one machine with the same settings, packages and kind of device.
    """
    rule_named(rule)
    part = Shard.parse(shard)
    with ray_crew(cluster, make, arguments) as crew:
        made_with = crew.described
        corpus = open_corpus(images, shard=part, batch_size=made_with["batch_size"])
        return complete(
            lambda batches: _observed_by(crew, batches),
            corpus,
            made_with,
            rule=rule,
            out=out,
            show=show,
            on_skip=on_skip,
        )


def _observed_by(crew: Crew, batches: Batches) -> Generator[tuple[int, Observed], None, None]:
    yield from work_through(crew, batches)
