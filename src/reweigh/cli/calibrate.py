"""``reweigh calibrate``: make reference tables from unlabeled images."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common

app = typer.Typer(add_completion=False)


@app.command()
def calibrate(
    model: str = common.MODEL,
    images: Path = typer.Argument(
        help="A folder of images, or a manifest: one path per line, a JSON list or JSONL."
    ),
    out: Path = typer.Option(
        ..., "--out", "-o", help="Folder for observations and tables; the same command resumes there."
    ),
    layer: list[int] = typer.Option(
        [-1], "--layer", "-l", help="0-based block to read, repeatable; -1 is the last."
    ),
    prompt: str = typer.Option("Please describe this image in detail.", help="What the model is asked."),
    template: str = typer.Option(
        None, help="Prompt template with {prompt}, for processors without a chat template."
    ),
    max_new_tokens: int = typer.Option(512, min=1, help="Longest description."),
    batch_size: int = typer.Option(1, "--batch-size", "-b", min=1, help="Images decoded together."),
    lens: str = typer.Option("native", help="Type of the ranked logits: native or float32."),
    rule: str = typer.Option("stable", help="Registration rule: stable, or count-N."),
    kernel: str = typer.Option("auto", help="Ranking kernel."),
    dtype: str = common.DTYPE,
    device: str = common.DEVICE,
    revision: str = common.REVISION,
    trust_remote_code: bool = common.REMOTE,
    json: bool = common.JSON,
) -> None:
    """Learn each token's typical evidence from unlabeled images.

    Stop it at any time; the same command goes on where it was and ends with the same bytes.
    """
    loaded, processor = common.load_model(
        model, dtype=dtype, device=device, revision=revision, trust_remote_code=trust_remote_code
    )
    from reweigh.register.calibrate import calibrate as run

    done = run(
        loaded,
        processor,
        images,
        layers=layer,
        out=out,
        prompt=prompt,
        template=template,
        max_new_tokens=max_new_tokens,
        batch_size=batch_size,
        dtype=lens,
        rule=rule,
        kernel=kernel,
        on_skip=lambda name, reason: typer.echo(f"skipped {name}: {reason}", err=True),
    )
    rows = [
        {"layer": block, "b0": table.scale, "registered": len(table), "folder": str(out / f"layer-{block}")}
        for block, table in done.tables.items()
    ]
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
    for row in rows:
        typer.echo(
            f"layer {row['layer']}: b0 = {row['b0']:.6g}, {row['registered']:,} tokens registered -> {row['folder']}"
        )
