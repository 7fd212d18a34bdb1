"""``reweigh calibrate``: make reference tables from unlabeled images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.options import RAY, grouped, open_cluster
from reweigh.cli.table import show_tables
from reweigh.errors import InputError, require_known
from reweigh.options import parse_options

if TYPE_CHECKING:
    from reweigh.calibration.calibrators import Calibrator
    from reweigh.calibration.settings import CalibrationSettings

app = typer.Typer(add_completion=False)

ENGINES = ("transformers", "vllm", "mlx")


@app.command()
@grouped
def calibrate(
    model: str = common.MODEL,
    images: str = typer.Argument(
        help="A folder of images, or a manifest: one path per line, a JSON list or JSONL."
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
        help="Calibrate every n-th batch from the i-th on, as i/n; `reweigh table merge` merges the folders.",
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
    ray: str | None = RAY,
    loading: common.Loading,
) -> None:
    """Make a reference table: how much evidence is normal for each token, from unlabeled images.

    Stop it at any time; the same command resumes and ends with the same bytes.
    """
    from reweigh.calibration.calibrate import calibrate_on, calibrate_with
    from reweigh.calibration.corpus import require_images
    from reweigh.calibration.settings import VLLM_BATCH, CalibrationSettings
    from reweigh.images import unread_pictures

    require_known("engine", [engine], ENGINES)
    settings = CalibrationSettings(
        layers=tuple(layer) or None,
        **asdict(question),
        template=loading.template,
        batch_size=batch_size or (VLLM_BATCH if engine == "vllm" else 1),
        rule=rule,
        shard=shard,
    )
    require_images(images)
    if Path(images).is_dir() and (unread := unread_pictures(images)) is not None:
        typer.echo(unread, err=True)
    common.look_into(model, Path(images))
    if engine_option and engine != "vllm":
        raise InputError("--engine-option is for vLLM", hint="add --engine vllm")
    if engine == "mlx" and ray is not None:
        raise InputError("--ray cannot be used with MLX", hint="calibrate shards with --shard and merge them")
    inside = _vllm_arguments(loading, parse_options(engine_option)) if engine == "vllm" else None
    if ray is not None:
        arguments = {**loading.locate(model), "engine": inside}
        done = calibrate_on(open_cluster(ray), arguments, images, settings, out=out, on_skip=_tell_skip)
    else:
        calibrator = _open_calibrator(model, loading, engine, inside, settings)
        done = calibrate_with(calibrator, images, settings, out=out, on_skip=_tell_skip)
    more = {"skipped": done.skipped, "observations": len(done.observations)}
    said = f", {len(done.skipped)} skipped, {len(done.observations):,} observations"
    show_tables(done, out, more, said)
    if shard == "1/1":
        common.finish(
            out, then=f"reweigh describe {common.quoted(model)} PICTURE --table {common.quoted(out)}"
        )
    else:
        common.finish(out, then=f"reweigh table merge {common.quoted(out)} PART ... -o TABLE")


def _open_calibrator(
    model: str,
    loading: common.Loading,
    engine: str,
    inside: dict[str, Any] | None,
    settings: CalibrationSettings,
) -> Calibrator:
    """Open the model in its engine; ``inside`` are vLLM's own arguments."""
    if inside is not None:
        from reweigh.calibration.calibrators import outside_engine

        found = loading.locate(model)
        engine_of: Any = outside_engine("vllm")
        opened: Calibrator = engine_of(found["name"], settings, name=found["called"], engine=inside)
        return opened
    from reweigh.calibration.calibrators import open_calibrator

    load = loading.load_mlx if engine == "mlx" else loading.load
    return open_calibrator(*load(model), settings)


def _tell_skip(name: str, reason: str) -> None:
    typer.echo(f"skipped {name}: {reason}", err=True)


def _vllm_arguments(loading: common.Loading, options: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of vLLM's ``LLM``."""
    found = loading.arguments
    if found.pop("device") is not None:
        raise InputError("device cannot be chosen with vLLM, which uses the one it was built for")
    return {**found, **options}
