"""``reweigh calibrate``: make reference tables from unlabeled images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.cluster import RayOptions, loading
from reweigh.cli.groups import grouped
from reweigh.cli.table import print_tables, table_rows
from reweigh.errors import InputError, require_known
from reweigh.options import parse_options

if TYPE_CHECKING:
    from reweigh.calibration.result import Calibration

app = typer.Typer(add_completion=False)

ENGINES = ("transformers", "vllm")


@app.command()
@grouped
def calibrate(
    model: str = common.MODEL,
    images: str = typer.Argument(
        help="A folder of images, a manifest (one path per line, a JSON list or JSONL), or an address such as s3://..."
    ),
    *,
    out: Path = typer.Option(
        ..., "--out", "-o", help="Folder for observations and tables; the same command resumes there."
    ),
    layer: list[int] = typer.Option(
        [],
        "--layer",
        "-l",
        help="0-based block to read, repeatable; -1 is the last. The paper's for this model, else the last, if not given.",
    ),
    question: common.Question,
    batch_size: int | None = typer.Option(
        None, "--batch-size", min=1, help="Images decoded together: 1, or 32 inside vLLM, if not given."
    ),
    lens: str = typer.Option("native", help="Type of the ranked logits: native or float32."),
    rule: str = typer.Option("stable", help="Registration rule: stable, or count-N."),
    readout: str = typer.Option(
        "dmrr", help="How logits become evidence: dmrr, or prob, logprob, zscore, zprob for comparison."
    ),
    kernel: str = typer.Option("auto", help="Ranking kernel."),
    shard: str = typer.Option(
        "1/1", help="Part i of n of the images, as i/n; `reweigh table merge` unites the parts."
    ),
    engine: str = typer.Option("transformers", help="What runs the model: transformers, or vllm."),
    engine_option: list[str] = typer.Option(
        [], help="An argument of vLLM's LLM as name=value, repeatable: tensor_parallel_size=2."
    ),
    cluster: RayOptions,
    weights: common.Weights,
    json: bool = common.JSON,
) -> None:
    """Learn each token's typical evidence from unlabeled images.

    Stop it at any time; the same command goes on where it was and ends with the same bytes.
    """
    shared = {
        "layers": layer or None,
        "out": out,
        **asdict(question),
        "rule": rule,
        "readout": readout,
        "shard": shard,
        "on_skip": lambda name, reason: typer.echo(f"skipped {name}: {reason}", err=True),
        **({} if batch_size is None else {"batch_size": batch_size}),
    }
    require_known("engine", [engine], ENGINES)
    _require(images, out, lens=lens, rule=rule, readout=readout, shard=shard)
    common.look_into(model, Path(images))
    inside: dict[str, Any] | None = None  # what vLLM is given
    if engine == "vllm":
        inside = _vllm_arguments(weights, parse_options(engine_option), lens=lens, kernel=kernel)
    elif engine_option:
        raise InputError("--engine-option goes to vLLM", hint="add --engine vllm")
    else:
        shared |= {"dtype": lens, "kernel": kernel}
    _print(_run(model, images, weights, cluster, inside, **shared), out, json=json)


def _run(
    model: str,
    images: str,
    weights: common.Weights,
    cluster: RayOptions,
    engine: dict[str, Any] | None,
    **shared: Any,
) -> Calibration:
    """Calibrate on a cluster, inside vLLM, or with a model loaded here."""
    if cluster.ray is not None:
        return _on_ray(model, images, weights, cluster, engine, **shared)
    if engine is not None:
        from reweigh.calibration.vllm import calibrate_in_vllm

        found = loading(model, weights)
        return calibrate_in_vllm(found["name"], images, name=found["called"], engine=engine, **shared)
    from reweigh.calibration.calibrate import calibrate as run

    return run(*weights.load(model), images, **shared)


def _print(done: Calibration, out: Path, *, json: bool) -> None:
    rows = table_rows(done, out)
    summary = {
        "images": done.observations.image_count,
        "skipped": done.skipped,
        "observations": len(done.observations),
        "tables": rows,
    }
    if json:
        common.emit_json(summary)
        return
    typer.echo(
        f"{summary['images']} images, {len(done.skipped)} skipped, {summary['observations']:,} observations"
    )
    print_tables(rows)


def _require(images: str, out: Path, *, lens: str, rule: str, readout: str, shard: str) -> None:
    """Find what is wrong with the settings before a model is loaded."""
    from reweigh.calibration.corpus import require_images
    from reweigh.calibration.resume import require_free
    from reweigh.method.readouts import READOUTS
    from reweigh.method.references import rule_named
    from reweigh.shards import Shard

    require_known("lens type", [lens], ("native", "float32"))
    require_known("readout", [readout], READOUTS)
    rule_named(rule)
    Shard.parse(shard)
    require_images(images)
    require_free(out)


def _on_ray(
    model: str,
    images: str,
    weights: common.Weights,
    options: RayOptions,
    engine: dict[str, Any] | None,
    *,
    out: Path,
    rule: str,
    shard: str,
    on_skip: Any,
    **settings: Any,
) -> Calibration:
    """Calibrate with the actors of a cluster; ``engine`` are the arguments of vLLM where that runs the model."""
    from reweigh.scale.calibrate import calibrate_on, calibrator, vllm_calibrator

    arguments = {**loading(model, weights), "settings": settings}
    if engine is not None:
        del arguments["load"]
        arguments["engine"] = engine
    return calibrate_on(
        options.cluster(),
        calibrator if engine is None else vllm_calibrator,
        arguments,
        images,
        out=out,
        rule=rule,
        shard=shard,
        on_skip=on_skip,
    )


def _vllm_arguments(
    weights: common.Weights, options: dict[str, Any], *, lens: str, kernel: str
) -> dict[str, Any]:
    """Arguments of vLLM's ``LLM``."""
    if lens != "native" or kernel != "auto" or weights.device is not None:
        raise InputError(
            "vLLM ranks its own logits where it runs: --lens, --kernel and --device do not go with it"
        )
    chosen = {
        "dtype": weights.dtype,
        "revision": weights.revision,
        "trust_remote_code": weights.trust_remote_code,
    }
    return {**chosen, **options}
