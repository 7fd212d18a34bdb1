"""``reweigh steer``: make steering vectors from labelled images, for the decoders that need them."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BENCHMARK, BenchmarkOptions, benchmark_of
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def steer(
    model: str = common.MODEL_OR_WORLD,
    *,
    benchmark: str = BENCHMARK,
    layer: list[int] = typer.Option([], "--layer", "-l", help="0-based block, repeatable; by default all."),
    out: Path = typer.Option(
        Path("steering"), "--out", "-o", help="Output folder; a stopped run resumes there."
    ),
    selection: BenchmarkOptions,
    loading: common.Loading,
    force: bool = common.REPLACE,
) -> None:
    """Make directions for `asd`, `vti` and `nullu`, and a list of words for `projectaway`, from labelled images.

    Labels are those of the benchmark's records for tuning: the tuning split of `world`, the training images of chair.
    """
    from reweigh.benchmarks import find_benchmark
    from reweigh.experiments.steer import claim_files, write_words
    from reweigh.experiments.steer import steer as run
    from reweigh.files.artifacts import only_one

    claim_files(out, force=force)
    benchmark = benchmark_of(model, benchmark)
    preset = find_benchmark(benchmark).tuning_options
    task = selection.task(benchmark, drawings=out / "pictures", preset=preset)
    task.require_records()
    loaded = loading.load(model)
    with only_one(out):
        runs = selection.runs(task, model, loading, loaded, force=force)
        found = run(*loaded, runs, out, layers=layer or None)
    words = write_words(out)
    if common.wants_json():
        common.emit_json(
            {
                "records": len(task.records),
                "factual": found.counts[0],
                "hallucinated": found.counts[1],
                "layers": list(found.layers),
                "fingerprint": found.fingerprint,
                "folder": str(out),
            }
        )
    else:
        typer.echo(
            f"{len(task.records):,} descriptions: {found.counts[0]:,} factual and {found.counts[1]:,} hallucinated "
            f"tokens, vectors of {len(found.layers)} blocks"
        )
    given = " ".join(f"--method-option {name}.vectors={out}" for name in ("asd", "vti", "nullu"))
    then = f"reweigh compare {model} --methods base,asd,vti,nullu,projectaway {given}"
    common.finish(out, words, then=f"{then} --method-option projectaway.erase={words}")
