"""``reweigh calibrate``: make reference tables from unlabeled images."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.cli.table import table_rows, tell_tables

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def calibrate(
    model: str = common.MODEL,
    images: Path = typer.Argument(
        help="A folder of images, or a manifest: one path per line, a JSON list or JSONL."
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
    batch_size: int = typer.Option(1, "--batch-size", "-b", min=1, help="Images decoded together."),
    lens: str = typer.Option("native", help="Type of the ranked logits: native or float32."),
    rule: str = typer.Option("stable", help="Registration rule: stable, or count-N."),
    readout: str = typer.Option(
        "dmrr", help="How logits become evidence: dmrr, or prob, logprob, zscore, zprob for comparison."
    ),
    kernel: str = typer.Option("auto", help="Ranking kernel."),
    weights: common.Weights,
    json: bool = common.JSON,
) -> None:
    """Learn each token's typical evidence from unlabeled images.

    Stop it at any time; the same command goes on where it was and ends with the same bytes.
    """
    loaded, processor = weights.load(model)
    from reweigh.calibration.calibrate import calibrate as run

    done = run(
        loaded,
        processor,
        images,
        layers=layer or None,
        out=out,
        **asdict(question),
        batch_size=batch_size,
        dtype=lens,
        rule=rule,
        readout=readout,
        kernel=kernel,
        on_skip=lambda name, reason: typer.echo(f"skipped {name}: {reason}", err=True),
    )
    rows = table_rows(done, out)
    summary = {
        "images": len(done.observations.images),
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
    tell_tables(rows)
