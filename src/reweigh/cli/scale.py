"""``reweigh scale``: what a calibration costs on a cluster of any size, and the schedule's losses, simulated."""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.errors import InputError

app = typer.Typer(add_completion=False)

IMAGES = (10**4, 10**5, 10**6, 10**7, 10**8)
GPUS = (1, 10, 100, 1000)
VOCABULARIES = (32_000, 152_000)
SIMULATED = ((100, 1), (1000, 10), (1000, 100), (5000, 100), (1000, 1000), (5000, 1000))
"""Shards and workers of the simulations."""


@app.command()
def scale(
    image_seconds: float | None = typer.Option(
        None, help="Time of an image on one of your workers; that of the embedded model here if not given."
    ),
    batch_size: int = typer.Option(8, min=1, help="Images of a shard."),
    memory: float = typer.Option(64.0, min=0, help="GiB of observations that the driver may hold."),
    stragglers: float = typer.Option(0.01, help="Share of shards that take ten times as long."),
    failures: float = typer.Option(0.001, help="Share of shards that end with their worker."),
    restart: float = typer.Option(60.0, help="Seconds until a lost worker has its model again."),
    scenes: int = typer.Option(8, min=1, help="Scenes of the embedded world that rates are measured on."),
    json: bool = common.JSON,
) -> None:
    """Estimate a calibration on a cluster from rates measured here, and check the estimate by simulation."""
    from reweigh.scale.cost import Rates, cost, sketch_bytes
    from reweigh.scale.simulate import Conditions, expected_seconds, simulate

    if image_seconds is not None and not 0 < image_seconds < math.inf:
        raise InputError(f"an image cannot take {image_seconds:g} seconds", hint="--image-seconds 2, say")
    how = Conditions(  # refuse what cannot be before anything is measured
        seconds=(1.0 if image_seconds is None else image_seconds) * batch_size,
        stragglers=stragglers,
        failures=failures,
        restart=restart,
    )
    measured = _measure(scenes)
    if image_seconds is None:
        how = replace(how, seconds=measured["image_seconds"] * batch_size)
    else:
        measured["image_seconds"] = image_seconds
    rates = Rates(**measured)
    costs = [
        cost(images, gpus, rates, how, batch=batch_size, memory=memory * 2**30)
        for images in IMAGES
        for gpus in GPUS
    ]
    checks = [
        {"shards": shards, "workers": workers, "model": expected_seconds(shards, workers, how)}
        | asdict(simulate(shards, workers, how))
        for shards, workers in SIMULATED
    ]
    sketches = [
        {
            "images": images,
            "observations": images * rates.image_bytes,
            "sketches": {str(size): sketch_bytes(images, size, rates) for size in VOCABULARIES},
        }
        for images in IMAGES
    ]
    page = {
        "rates": asdict(rates),
        "costs": [asdict(one) for one in costs],
        "sketches": sketches,
        "simulated": checks,
    }
    if json:
        common.emit_json(page)
    else:
        _print(page, given=image_seconds is not None)


def _measure(scenes: int) -> dict[str, float]:
    """Rates of this machine, from a calibration of the embedded model on a few scenes."""
    from reweigh.calibration.complete import observe_batches
    from reweigh.calibration.corpus import open_corpus
    from reweigh.calibration.job import open_job
    from reweigh.scale.cost import measure_driver
    from reweigh.world.scenes import scene

    loaded = common.Weights(dtype="auto", device=None, revision=None, trust_remote_code=False).load(
        common.WORLD
    )
    with tempfile.TemporaryDirectory() as temporary:
        images = Path(temporary) / "images"
        images.mkdir()
        for number in range(scenes):
            scene("calibration", index=number).image().save(images / f"{number:06d}.png")
        job = open_job(*loaded, batch_size=scenes)
        batch = open_corpus(images).images
        list(observe_batches(job, {0: batch[:1]}))  # warms up
        start = time.perf_counter()
        [(_, observed)] = observe_batches(job, {0: batch})
        seconds = (time.perf_counter() - start) / scenes
        return {"image_seconds": seconds} | measure_driver(
            images, observed, job.layers, Path(temporary) / "out"
        )


def _print(page: dict[str, Any], *, given: bool) -> None:
    rates = page["rates"]
    source = "as given" if given else "the embedded model, here"
    typer.echo(
        f"{rates['image_seconds']:.3g} s for an image on one worker ({source}); "
        f"the driver hashes one in {1000 * rates['hash_seconds']:.2g} ms, keeps a part in "
        f"{1000 * rates['part_seconds']:.2g} ms, {rates['image_bytes'] / 1000:.2g} kB of observations an image"
    )
    typer.echo(f"\n{'images':>12} {'GPUs':>6} {'hours':>10} {'busy':>6} {'GB':>8}  limit")
    for one in page["costs"]:
        typer.echo(
            f"{one['images']:>12,} {one['gpus']:>6,} {one['seconds'] / 3600:>10,.2f} {one['efficiency']:>6.0%} "
            f"{one['bytes'] / 1e9:>8,.2f}  {one['limit']}"
        )
    heads = "".join(f"{f'sketches, V={size:,}':>22}" for size in VOCABULARIES)
    typer.echo(f"\n{'images':>12} {'observations':>13}{heads}   GB at most, one layer")
    for one in page["sketches"]:
        sizes = "".join(f"{one['sketches'][str(size)] / 1e9:>22,.2f}" for size in VOCABULARIES)
        typer.echo(f"{one['images']:>12,} {one['observations'] / 1e9:>13,.2f}{sizes}")
    typer.echo(f"\n{'shards':>8} {'workers':>8} {'model s':>9} {'simulated s':>12} {'lost':>5} {'copied':>7}")
    for one in page["simulated"]:
        typer.echo(
            f"{one['shards']:>8,} {one['workers']:>8,} {one['model']:>9,.0f} {one['seconds']:>12,.0f} "
            f"{one['lost']:>5} {one['copies']:>7}"
        )
