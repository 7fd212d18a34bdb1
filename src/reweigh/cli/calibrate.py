"""``reweigh calibrate``: make reference tables from unlabeled images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.options import RayOptions, grouped, loading_arguments
from reweigh.cli.table import show_tables
from reweigh.errors import InputError, require_known
from reweigh.options import parse_options

if TYPE_CHECKING:
    from reweigh.calibration.job import CalibrationSettings
    from reweigh.calibration.loop import Job
    from reweigh.calibration.result import Calibration

app = typer.Typer(add_completion=False)

ENGINES = ("transformers", "vllm", "mlx")


@app.command()
@grouped
def calibrate(
    model: str = common.MODEL,
    images: str = typer.Argument(
        help="A folder of images, a manifest (one path per line, a JSON list or JSONL), or an address such as s3://..."
    ),
    *,
    out: Path = typer.Option(
        ..., "--out", "-o", help="Folder for observations and tables; a stopped run resumes there."
    ),
    layer: list[int] = typer.Option(
        [],
        "--layer",
        "-l",
        help="0-based block to read, repeatable (-1 is the last); by default the paper's for this model, else the last.",
    ),
    question: common.Question,
    batch_size: int | None = typer.Option(
        None, "--batch-size", min=1, help="Images to decode together; by default 1, or 32 with vLLM."
    ),
    rule: str = typer.Option(
        "stable",
        help="Which tokens to register: stable, or count-N for those with at least N observations.",
        rich_help_panel=common.ADVANCED,
    ),
    shard: str = typer.Option(
        "1/1",
        help="Part i of n of the images, as i/n; `reweigh table merge` merges the parts.",
        rich_help_panel=common.ADVANCED,
    ),
    engine: str = typer.Option(
        "transformers",
        help="Engine that runs the model: transformers, vllm or mlx.",
        rich_help_panel=common.ADVANCED,
    ),
    engine_option: list[str] = typer.Option(
        [],
        metavar="NAME=VALUE",
        help="Argument of vLLM's LLM, e.g. tensor_parallel_size=2; repeatable.",
        rich_help_panel=common.ADVANCED,
    ),
    cluster: RayOptions,
    loading: common.Loading,
) -> None:
    """Make a reference table: how much evidence is normal for each token, from unlabeled images.

    Stop it at any time; the same command resumes and ends with the same bytes.
    """
    from reweigh.calibration.job import VLLM_BATCH, CalibrationSettings

    require_known("engine", [engine], ENGINES)
    settings = CalibrationSettings(
        layers=tuple(layer) or None,
        **asdict(question),
        template=loading.template,
        batch_size=batch_size or (VLLM_BATCH if engine == "vllm" else 1),
        rule=rule,
        shard=shard,
    )
    _require(images, out)
    common.look_into(model, Path(images))
    inside: dict[str, Any] | None = None  # arguments of vLLM
    if engine == "vllm":
        inside = _vllm_arguments(loading, parse_options(engine_option))
    elif engine_option:
        raise InputError("--engine-option is for vLLM", hint="add --engine vllm")
    if engine == "mlx" and cluster.ray is not None:
        raise InputError("--ray cannot be used with MLX", hint="calibrate shards with --shard and merge them")
    load = loading.load_mlx if engine == "mlx" else loading.load
    _print(_run(model, images, loading, cluster, inside, settings, out, load), out)
    then = "reweigh table merge" if shard != "1/1" else f"reweigh describe {model} PICTURE --table"
    common.finish(out, then=f"{then} {out}" + (" PART ... -o TABLE" if shard != "1/1" else ""))


def _run(
    model: str,
    images: str,
    loading: common.Loading,
    cluster: RayOptions,
    engine: dict[str, Any] | None,
    settings: CalibrationSettings,
    out: Path,
    load: Callable[[str], tuple[Any, Any]],
) -> Calibration:
    """Calibrate on a cluster, inside vLLM (``engine`` are its arguments), or with a model loaded here."""
    found = loading_arguments(model, loading)
    if cluster.ray is not None:
        from reweigh.calibration.calibrate import calibrate_on, calibrator, vllm_calibrator

        make = calibrator if engine is None else vllm_calibrator
        if engine is not None:
            found = {"name": found["name"], "called": found["called"], "engine": engine}
        return calibrate_on(cluster.cluster(), make, found, images, settings, out=out, on_skip=_tell_skip)
    from reweigh.calibration.loop import run_job

    job: Job
    if engine is not None:
        from reweigh.calibration.vllm import open_vllm_job

        job = open_vllm_job(found["name"], settings, name=found["called"], engine=engine)
    else:
        from reweigh.calibration.job import open_job

        job = open_job(*load(model), settings)
    return run_job(job, images, settings, out=out, on_skip=_tell_skip)


def _tell_skip(name: str, reason: str) -> None:
    typer.echo(f"skipped {name}: {reason}", err=True)


def _print(done: Calibration, out: Path) -> None:
    more = {"skipped": done.skipped, "observations": len(done.observations)}
    said = f", {len(done.skipped)} skipped, {len(done.observations):,} observations"
    show_tables(done, out, more, said)


def _require(images: str, out: Path) -> None:
    """Refuse images and a folder that cannot be used before a model is loaded."""
    from reweigh.calibration.corpus import require_images
    from reweigh.calibration.resume import require_free

    require_images(images)
    require_free(out)


def _vllm_arguments(loading: common.Loading, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of vLLM's ``LLM``."""
    found = loading.arguments
    if found.pop("device") is not None:
        raise InputError("device cannot be chosen with vLLM, which uses the one it was built for")
    return {**found, **options}
