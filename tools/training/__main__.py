"""``python -m tools.training``: show the embedded model's training data, check the model, train it again."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from reweigh.cli import common

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train and check the embedded model.")


@app.command()
def sample(
    out: Path = typer.Option(Path("sheet.png"), "--out", "-o", help="The contact sheet, a PNG."),
    count: int = typer.Option(12, min=1, max=400, help="How many scenes."),
    seed: int = typer.Option(0, min=0, help="Seed of the series of scenes."),
    split: str = typer.Option("train", help="train, calibration, tuning or evaluation."),
    size: int = typer.Option(224, min=32, max=1024, help="Side of a scene in pixels; sharp at any size."),
    drawings: bool = typer.Option(False, "--drawings", help="Show every drawing instead of scenes."),
    as_json: bool = typer.Option(False, "--json", help="Print scenes, boxes and descriptions as JSON."),
) -> None:
    """Write a contact sheet of scenes with the descriptions that training uses."""
    from reweigh.files.artifacts import replacing
    from reweigh.world.scenes import scenes
    from tools.training.grammar import describe
    from tools.training.sheet import drawing_sheet, scene_sheet

    chosen = list(scenes(split, count, seed))
    texts = [describe(scene) for scene in chosen]
    picture = drawing_sheet() if drawings else scene_sheet(chosen, [t.text for t in texts], size=size)
    with replacing(out) as temporary:
        picture.save(temporary, format="PNG")
    if as_json:
        rows = [
            {
                "id": scene.id,
                "kind": scene.kind,
                "objects": scene.counts,
                "boxes": [{"object": name, "box": list(box)} for name, box in scene.boxes(size)],
                "description": text.text,
                "made_up": [m.name for m in text.mentions if not m.present],
            }
            for scene, text in zip(chosen, texts, strict=True)
        ]
        typer.echo(json.dumps({"sheet": str(out), "scenes": rows}, indent=2))
    else:
        typer.echo(
            f"{out}: {'all drawings' if drawings else f'{count} scenes'}, {picture.width} x {picture.height} pixels"
        )


@app.command()
def check(
    scenes: int = typer.Option(1000, min=1, help="How many scenes."),
    seed: int = typer.Option(0, min=0, help="Seed of the series of scenes."),
    split: str = typer.Option("evaluation", help="train, calibration, tuning or evaluation."),
    model: Path | None = typer.Option(None, help="A checkpoint folder; by default the embedded one."),
    layer: int | None = typer.Option(
        None, help="Block whose lens to check; by default the operating point's."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the figures as JSON."),
) -> None:
    """Let the model describe scenes and answer questions, and print how well it does and how well its lens reads."""
    from reweigh.world import operating_point
    from reweigh.world.scenes import scenes as series
    from tools.training.check import check as figures_of
    from tools.training.check import lens_figures
    from tools.training.speaking import load

    common.quiet()
    chosen = list(series(split, scenes, seed))
    loaded = load(model)
    figures = figures_of(*loaded, chosen)
    figures |= lens_figures(*loaded, chosen, operating_point()["layer"] if layer is None else layer)
    if as_json:
        typer.echo(json.dumps({k: round(v, 4) for k, v in figures.items()}, indent=2))
        return
    for name, value in figures.items():
        digits = 0 if name == "n" else 4 if name.startswith("lens") else 2
        typer.echo(f"{name:<18} {value:8.{digits}f}")


@app.command()
def train(
    out: Path = typer.Option(
        ..., "--out", "-o", help="Folder of states, log, plot and the final checkpoint."
    ),
    stage: str | None = typer.Option(None, help="Stop after this stage."),
    workers: int = typer.Option(
        2, min=1, max=16, help="Number of single-threaded processes; the recipe was made with 2."
    ),
    as_json: bool = common.JSON,
) -> None:
    """Train the embedded model with the recipe; the same command resumes after a stop or a kill."""
    from tools.training.recipe import finish, until
    from tools.training.recipe import train as run

    run(out, recipe=until(stage), workers=workers)
    folder = str(finish(out, until(stage)))
    if as_json:
        common.emit_json({"checkpoint": folder})
    else:
        typer.echo(folder)


if __name__ == "__main__":
    app()
