"""``reweigh steer``: make steering vectors from labelled images, for the decoder ``asd``."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def steer(
    model: str = typer.Argument(
        common.WORLD, help="Hub id or checkpoint folder; by default the embedded model."
    ),
    *,
    benchmark: str = typer.Option(
        "world",
        "--benchmark",
        "-b",
        help="Source of labels: world (300 scenes of its tuning split) or chair (images of its train split).",
    ),
    layer: list[int] = typer.Option([], "--layer", "-l", help="0-based block, repeatable; by default all."),
    out: Path = typer.Option(
        Path("steering"), "--out", "-o", help="Output folder; a stopped run resumes there."
    ),
    selection: BenchmarkOptions,
    weights: common.Weights,
    json: bool = common.JSON,
) -> None:
    """Make steering vectors for `asd`: average the states of factual and hallucinated mentions."""
    from reweigh.benchmarks import find_benchmark
    from reweigh.experiments.steer import steer as run
    from reweigh.files.artifacts import only_one

    preset = find_benchmark(benchmark).tuning_options
    task = selection.task(benchmark, drawings=out / "pictures", preset=preset)
    task.require_records()
    loaded = weights.load(model)
    with only_one(out):
        found = run(*loaded, selection.runs(task, model, weights, loaded), out, layers=layer or None)
    page = {
        "records": len(task.records),
        "factual": found.counts[0],
        "hallucinated": found.counts[1],
        "layers": list(found.layers),
        "fingerprint": found.fingerprint,
        "folder": str(out),
    }
    if json:
        common.emit_json(page)
        return
    typer.echo(
        f"{len(task.records):,} descriptions: {found.counts[0]:,} factual and {found.counts[1]:,} hallucinated tokens"
    )
    typer.echo(f"steering vectors of {len(found.layers)} blocks -> {out}")
    typer.echo(f"use them: reweigh compare {model} --methods base,asd --method-option asd.vectors={out}")
