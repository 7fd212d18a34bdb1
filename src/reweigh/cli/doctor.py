"""``reweigh doctor``: what was found inside a model, and whether the lens can be trusted on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)


@app.command()
@grouped
def doctor(
    model: str = typer.Argument(None, help="Hub id or checkpoint folder; `world` is the embedded model."),
    image: Path = typer.Argument(None, help="A sample picture; by default a generated one."),
    *,
    points: bool = typer.Option(False, "--points", help="List the paper's layers and betas instead."),
    loading: common.Loading,
) -> None:
    """Check a model: print its parts, the visual positions of a sample image, and whether the lens can be trusted.

    Exit code 1 if the model is not supported.
    """
    if points:
        _print_points()
        return
    if model is None:
        raise typer.BadParameter("give a model, or --points", param_hint="MODEL")
    from reweigh.engines.transformers.examine import examine
    from reweigh.images import read_image

    if image is not None:
        read_image(image)  # before the model is loaded
    loaded, processor = loading.load(model)
    report = examine(loaded, processor, image, template=loading.template)
    if common.wants_json():
        common.emit_json(report)
    else:
        _print(report)
    if not report["parity"]["holds"]:
        raise typer.Exit(1)
    if model != common.WORLD:
        common.finish(then=f"reweigh calibrate {model} IMAGES -o TABLE")


def _print_points() -> None:
    from reweigh.families.points import PUBLISHED
    from reweigh.results.table import Cell, Column, Table

    if common.wants_json():
        common.emit_json([asdict(point) for point in PUBLISHED])
        return
    columns = [Column("model"), Column("family"), Column("blocks", digits=0), Column("layer", digits=0)]
    columns += [Column("beta", digits=1), Column("source")]
    rows: list[list[Cell]] = [
        [point.model, point.family, point.blocks, point.layer, point.beta, point.source]
        for point in PUBLISHED
    ]
    note = (
        "Other sizes of a family use the point of the nearest size, at the same distance from the last block."
    )
    common.console().print(Table(columns, rows, note))


def _print(report: dict[str, Any]) -> None:
    from reweigh.text import in_words

    visual, parity = report["visual_positions"], report["parity"]
    tiles = ", ".join(f"tile {tile}: {rows}x{cols}" for tile, rows, cols in visual["tiles"]) or "no grid"
    lines = [
        f"{report['class']} (family {report['family']}, {report['dtype']} on {report['device']})",
        f"  blocks      {report['blocks']['path']} ({report['blocks']['count']})",
        f"  final norm  {report['norm']}",
        f"  head        {report['head']} ({report['vocabulary']:,} tokens, lens in {report['lens_dtype']})",
        f"  image token {', '.join(map(str, report['image_tokens']))}",
        f"  visual positions of the sample: {visual['count']} of {visual['prompt_length']}, "
        f"columns {visual['first']} to {visual['last']} ({tiles})",
        f"  ranking kernel {report['kernel']['chosen']} (known: {', '.join(report['kernel']['known'])})",
        *(
            [f"    a faster kernel is not used: {report['kernel']['faster']}"]
            if report["kernel"]["faster"]
            else []
        ),
        f"  lens parity: largest difference {parity['max_difference']:.3g}, "
        f"rank agreement {parity['rank_agreement']:.4f} at {parity['positions']} positions",
    ]
    if parity["between_blocks"]:
        lines.append(
            f"  adds to the stream after blocks {in_words(parity['between_blocks'])}; read after the addition"
        )
    lines.append(
        "verdict: "
        + ("supported" if parity["holds"] else "NOT supported: the lens is not this model's output path")
    )
    typer.echo("\n".join(lines))
