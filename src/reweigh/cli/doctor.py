"""``reweigh doctor``: what was found inside a model, and whether the lens can be trusted on it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from reweigh.cli import common
from reweigh.cli.options import DECODER_OPTION, decoder_options, grouped
from reweigh.errors import require_known

app = typer.Typer(add_completion=False)
PICTURES = 5
"""Pictures about which a decoder answers."""


@app.command()
@grouped
def doctor(
    model: str = typer.Argument(None, help="Hub id or checkpoint folder; `world` is the embedded model."),
    image: Path = typer.Argument(None, help="A sample picture; by default a generated one."),
    *,
    table: str = common.TABLE,
    points: bool = typer.Option(False, "--points", help="List the paper's layers and betas instead."),
    decoder: str | None = typer.Option(
        None, help="Check a decoder on the model instead: its logits, words and cost."
    ),
    decoder_option: list[str] = DECODER_OPTION,
    engine: str = typer.Option(
        "transformers",
        help="transformers, or mlx to compare mlx-vlm's version of the model with it.",
        rich_help_panel=common.ADVANCED,
    ),
    loading: common.Loading,
) -> None:
    """Check that a model is supported, and print what was found inside it.

    The exit code is 1 if it is not.
    """
    if points:
        _print_points()
        return
    if model is None:
        raise typer.BadParameter("name a model, or use --points", param_hint="MODEL")
    from reweigh.doctor.model import examine
    from reweigh.images import read_image

    require_known("engine", [engine], ("transformers", "mlx"))
    if image is not None:
        read_image(image)  # before the model is loaded
    if engine == "mlx":
        _compare(model, image, loading)
        return
    if decoder is not None:
        _check_decoder(model, decoder, decoder_option, image, loading)
        return
    loaded, processor = loading.load(model)
    report = examine(loaded, processor, image, template=loading.template)
    if table is not None:
        report["references"] = _references(common.table_of(model, table))
    common.show(report, lambda: _print(report))
    if warning := report.get("references", {}).get("warning"):
        typer.echo(f"warning: {warning}", err=True)
    if not report["parity"]["holds"]:
        raise typer.Exit(1)
    if model != common.WORLD:
        common.finish(then=f"reweigh calibrate {common.quoted(model)} IMAGES -o TABLE")


def _references(place: str) -> dict[str, Any]:
    """Say how many references of a table are below b0, and whether they are too many."""
    from reweigh.tables.table import ReferenceTable

    table = ReferenceTable.from_pretrained(place)
    facts = {"layer": table.layer, "registered": len(table), "below_b0": table.low_share}
    return {**facts, "warning": table.weakness()}


def _check_decoder(
    model: str, decoder: str, texts: list[str], image: Path | None, loading: common.Loading
) -> None:
    """Let a decoder answer beside the base model, about drawn scenes and the picture given."""
    options = decoder_options(
        decoder, texts, model, common.Point(table=None, layer=None, beta=None), force=False
    )
    from reweigh.doctor.decoder import examine_decoder
    from reweigh.images import read_image
    from reweigh.world.scenes import scene

    pictures = [scene("evaluation", index).image() for index in range(PICTURES)]
    pictures = pictures if image is None else [read_image(image), *pictures[1:]]
    report = examine_decoder(decoder, *loading.load(model), pictures, template=loading.template, **options)
    common.show(report, lambda: _print_decoder(model, report))
    if not report["batch"]["holds"]:
        raise typer.Exit(1)


def _print_decoder(model: str, report: dict[str, Any]) -> None:
    batch, cost = report["batch"], report["cost"]
    words, answers = report["words"], report["answers"]
    shapes = ", ".join(str(tuple(shape)) for shape in report["shapes"]) or "none"
    lines = [
        f"{report['decoder']} ({report['title']}) on {model}: {answers['of']} short answers, alone and in one batch",
        f"  logits  edited in {report['edited']} of {report['passes']} passes, usable in all; shapes {shapes}",
        f"  batch   moves the first logits by up to {batch['own']:.2g} (those of the base model by {batch['base']:.2g})",
        f"  words   {words['changed']} of {words['of']} differ from the base model's, in {answers['changed']} answers",
        f"  cost    {cost['own']:.3g} ms per token, {cost['own'] / cost['base']:.2f} times the base model's",
    ]
    if not batch["holds"]:
        verdict = "NOT usable in batches: a row's logits depend on the other rows"
    elif not answers["changed"]:
        verdict = "usable, but it changed no word of these answers"
    else:
        verdict = "usable"
    typer.echo("\n".join([*lines, f"verdict: {verdict}"]))


def _compare(model: str, image: Path | None, loading: common.Loading) -> None:
    """Compare mlx-vlm's version of a model with transformers'."""
    loading.require_mlx()
    loaded = loading.load(model)  # first: mlx-vlm replaces the processors of transformers
    mlx = loading.load_mlx(model)
    from reweigh.doctor.mlx import examine

    report = examine(loaded, mlx, image, template=loading.template)
    common.show(report, lambda: _print_comparison(report))
    if not report["lens"]["holds"] or (not report["agrees"] and not report["differences"]):
        raise typer.Exit(1)


def _print_comparison(report: dict[str, Any]) -> None:
    logits, evidence, pixels = report["logits"], report["evidence"], report["pixels"]
    pixel_words = "other tiles" if pixels is None else f"differ by up to {pixels:.2g}"
    lines = [
        f"{report['class']} (family {report['family']}, {report['dtype']}): mlx-vlm against transformers, same inputs",
        f"  logits    differ by up to {logits['max_difference']:.2g} of a range of {logits['range']:.3g}; "
        f"same best token at {logits['same_winner']:.1%} of {logits['positions']} positions",
        f"  evidence  of layer {evidence['layer']} differs by up to {evidence['max_difference']:.2g} (largest value "
        f"{evidence['largest']:.2g}, {evidence['positions']} visual positions)",
        f"  pixels    {pixel_words} between the two image processors",
        f"  lens      misorders the model's best tokens by {report['lens']['disagreement']:.2g} of the logits' range",
        *(f"  differs: {one}" for one in report["differences"]),
    ]
    if not report["lens"]["holds"]:
        verdict = "NOT supported: norm and head do not reproduce this model's logits"
    elif report["shares_tables"]:
        verdict = "computed alike; a table made with one engine can be used with the other"
    elif report["differences"]:
        verdict = (
            "a table made with transformers is refused here; make one with `reweigh calibrate --engine mlx`"
        )
    else:
        verdict = (
            "NOT supported: mlx-vlm's results differ, and no known difference explains it; please report it"
        )
    typer.echo("\n".join([*lines, f"verdict: {verdict}"]))


def _print_points() -> None:
    from reweigh.families.points import PUBLISHED
    from reweigh.lab.views.table import Cell, Column, Table

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
        f"  head        {report['head']} ({report['vocabulary']:,} rows, {report['rows_ranked']:,} of them ranked, "
        f"lens in {report['lens_dtype']})",
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
    if (references := report.get("references")) is not None:
        lines.append(
            f"  references  {references['registered']:,} of layer {references['layer']}, "
            f"{references['below_b0']:.0%} below b0"
        )
    if parity["between_blocks"]:
        lines.append(
            f"  adds to the stream after blocks {in_words(parity['between_blocks'])}; read after the addition"
        )
    lines.append(
        "verdict: "
        + (
            "supported"
            if parity["holds"]
            else "NOT supported: norm and head do not reproduce this model's logits"
        )
    )
    typer.echo("\n".join(lines))
