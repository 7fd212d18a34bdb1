"""``python -m tools.training.photographs``: prepare pictures, train, export a LLaVA, look at it."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.errors import InputError
from tools.training.photographs.prepare import Parts

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Train a small LLaVA on photographs.")
FOLDER = typer.Argument(help="The prepared folder.")
DEFAULT = Parts()


@app.command()
def prepare(
    images: Path = typer.Argument(help="Folder of pictures."),
    captions: Path = typer.Argument(help="Flickr8k's token or CSV file, or COCO's captions_*.json."),
    out: Path = typer.Option(
        ..., "--out", "-o", help="Folder of features and lists; the same command resumes."
    ),
    vision: str = typer.Option(DEFAULT.vision, help="CLIP tower: a folder or a name on the Hub."),
    language: str = typer.Option(
        DEFAULT.language, help="Language model of Llama's kind: a folder or a name."
    ),
    size: int = typer.Option(DEFAULT.size, min=16, help="Side in pixels at which the tower sees a picture."),
    limit: int | None = typer.Option(None, min=1, help="Use this many pictures."),
) -> None:
    """Read each picture once and split the pictures by their names."""
    from tools.training.photographs.prepare import prepare as run

    made = run(out, images, captions, Parts(vision, language, size), limit=limit)
    typer.echo(f"{out}: {len(made.of('train'))} pictures to train on, {len(made.of('dev'))} to check on")


@app.command()
def train(
    folder: Path = FOLDER,
    steps: int = typer.Option(1200, min=1, help="Steps of 4 pictures in each worker."),
    workers: int = typer.Option(
        2, min=1, max=16, help="Single-threaded processes that average their gradients."
    ),
) -> None:
    """Train connector and updates by captioning loss; the same command resumes."""
    from reweigh.files.artifacts import read_jsonl
    from tools.training.learning import LOG
    from tools.training.photographs.lesson import train as run

    run(folder, steps=steps, workers=workers)
    typer.echo(" step   loss  right  wrong   (per token; right and wrong picture, development)")
    for row in read_jsonl(folder / LOG):
        if "right" in row:
            typer.echo(f"{row['step']:5d} {row['loss']:6.3f} {row['right']:6.3f} {row['wrong']:6.3f}")


@app.command()
def export(
    folder: Path = FOLDER,
    out: Path = typer.Option(..., "--out", "-o", help="Folder of the LLaVA checkpoint; must not exist."),
) -> None:
    """Write a LLaVA checkpoint that every command of reweigh takes."""
    from tools.training.photographs.export import export as run
    from tools.training.photographs.lesson import trained

    if out.exists():
        raise InputError(f"{out} exists", hint="choose another folder")
    typer.echo(run(trained(folder), out))


@app.command()
def check(
    model: Path = typer.Argument(help="The exported checkpoint."),
    pictures: Path = typer.Argument(help="A list of pictures, such as test.txt of the prepared folder."),
    out: Path = typer.Option(
        Path("pictures.png"), "--out", "-o", help="Sheet of pictures with word maps, a PNG."
    ),
    count: int = typer.Option(8, min=1, max=64, help="How many pictures."),
) -> None:
    """Describe pictures, and draw them with maps of the words."""
    from reweigh.files.artifacts import replacing
    from tools.training.photographs.pictures import sheet
    from tools.training.speaking import load

    paths = [Path(line) for line in pictures.read_text("utf-8").splitlines()[:count]]
    page, texts = sheet(*load(model), paths)
    with replacing(out) as temporary:
        page.save(temporary, format="PNG")
    for path, text in zip(paths, texts, strict=True):
        typer.echo(f"{path.name}: {text}")
    typer.echo(out)


def main() -> None:
    """Run a command; what the user can mend is one line."""
    from reweigh.errors import ReweighError

    try:
        app()
    except ReweighError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
