"""``reweigh world``: scenes of the embedded world as picture files."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Scenes of the embedded world.")


@app.callback()
def _group() -> None:
    """Keep `draw` a subcommand even though it is the only one."""


@app.command()
def draw(
    out: Path = typer.Option(..., "--out", "-o", help="Folder for the pictures, one PNG per scene."),
    count: int = typer.Option(500, min=1, help="How many scenes."),
    seed: int = typer.Option(0, min=0, help="Seed of the series of scenes."),
    split: str = typer.Option("calibration", help="train, calibration, tuning or evaluation."),
    boxes: bool = typer.Option(
        False, "--boxes", help="Also write the ground truth: truth.jsonl, boxes.jsonl and words.txt."
    ),
) -> None:
    """Draw scenes as PNG files of the model's own size, for `reweigh calibrate` or any other tool."""
    from reweigh.files.outputs import claim
    from reweigh.progress import progress
    from reweigh.world.pictures import BOXES, TRUTH, WORDS, write_boxes
    from reweigh.world.pictures import draw as drawn
    from reweigh.world.scenes import scenes

    if boxes:
        claim([out / name for name in (BOXES, TRUTH, WORDS)])
    written = [
        str(drawn(scene, out)) for scene in progress(scenes(split, count, seed), "drawing", total=count)
    ]
    if boxes:
        write_boxes(scenes(split, count, seed), out)
    common.show({"out": str(out), "pictures": written}, lambda: typer.echo(out))
    common.finish(out, then=f"reweigh describe world {common.quoted(written[0])}")
