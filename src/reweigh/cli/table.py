"""``reweigh table``: show, merge, re-register and share reference tables; none of it needs a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.calibration.result import Calibration

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Show, merge, register and share reference tables.",
)


@app.command()
def show(
    folder: str = typer.Argument(help="Table folder or Hub repository."),
    other: str | None = typer.Argument(None, help="Another one, to show how the two differ."),
    layer: int = common.LAYER,
) -> None:
    """Verify a table and print what it contains and how it was made, or how two tables differ."""
    from reweigh.tables.table import ReferenceTable

    if other is not None:
        _show_difference(folder, other, layer)
        return
    table = ReferenceTable.from_pretrained(folder, layer=layer)
    made, identity = table.about, table.about.get("identity", {})
    page = {
        "layer": table.layer,
        "b0": table.b0,
        "registered": len(table),
        "fingerprint": table.fingerprint,
        "point": None if table.point is None else asdict(table.point),
        "about": dict(made),
    }
    if common.wants_json():
        common.emit_json(page)
        return
    typer.echo(f"reference table of {identity.get('model_id', '?')} ({identity.get('architecture', '?')})")
    typer.echo(
        f"  layer {table.layer} of {identity.get('blocks', '?')}, lens {made.get('dtype', '?')}, rule {made.get('rule')}"
        + ("" if table.readout == "dmrr" else f", read as {table.readout}")
    )
    typer.echo(f"  b0 = {table.b0:.6g}, {len(table):,} tokens registered from {made.get('images')} images")
    typer.echo(
        f"  point: {table.point or 'none recorded for this layer; `reweigh tune --table` records one'}"
    )
    typer.echo(f"  prompt {made.get('prompt')!r}, at most {made.get('max_new_tokens')} new tokens")
    if settings := made.get("generation"):
        typer.echo(f"  decoded with {', '.join(f'{name} {value}' for name, value in settings.items())}")
    typer.echo(f"  fingerprint {table.fingerprint}")


@app.command()
def merge(
    shards: list[Path] = typer.Argument(help="Folders of the shards of one calibration."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for the merged calibration."),
) -> None:
    """Merge the shards of a calibration; in any order, the result equals one run over all images."""
    from reweigh.calibration.result import merge_shards

    _report(merge_shards(shards, out), out)


@app.command()
def register(
    source: Path = typer.Argument(help="A calibration folder."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder for the new tables."),
    rule: str = typer.Option("stable", help="stable, or count-N for tokens with at least N observations."),
) -> None:
    """Register tokens by another rule, from the observations alone."""
    from dataclasses import replace

    from reweigh.calibration.result import Calibration, require_free, tables_of

    old = Calibration.load(source)
    if out.resolve() == source.resolve():
        raise InputError(
            f"{out} is also the input and would be overwritten", hint="write into another folder"
        )
    require_free(out, old.tables)
    new = replace(old, tables=tables_of(old.observations, old.about, rule=rule))
    for table in new.tables.values():
        table.save_pretrained(out)
    _report(new, out)


@app.command()
def export(
    folder: str = typer.Argument(help="Table folder or Hub repository."),
    out: Path = typer.Option(..., "--out", "-o", help="Folder to write."),
    layer: int = common.LAYER,
) -> None:
    """Write a folder for the Hub: the table, its tuned point, a model card, and code for `custom_generate`."""
    from reweigh.integrations.export import export_table

    files = export_table(folder, out, layer=layer)
    if common.wants_json():
        common.emit_json({"files": [str(path) for path in files]})
    call = f'model.generate(**inputs, custom_generate="{out}", trust_remote_code=True, table="{out}")'
    common.finish(*files, then=call)


@app.command()
def push(
    folder: str = typer.Argument(help="Table folder or Hub repository."),
    repo: str = typer.Argument(help="Hub repository, e.g. me/llava-reweigh."),
    layer: int = common.LAYER,
    private: bool = typer.Option(False, help="Make the repository private."),
) -> None:
    """Upload a table to the Hub, as `reweigh table export` writes it."""
    from reweigh.integrations.export import push_table

    address = push_table(folder, repo, layer=layer, private=private)
    if common.wants_json():
        common.emit_json({"address": address})
        return
    typer.echo(address)
    common.finish(then=f'model.generate(**inputs, custom_generate="{repo}", trust_remote_code=True)')


def _show_difference(first: str, second: str, layer: int | None) -> None:
    from reweigh.tables.table import ReferenceTable
    from reweigh.text import in_words

    found = ReferenceTable.from_pretrained(first, layer=layer).compare(
        ReferenceTable.from_pretrained(second, layer=layer)
    )
    if common.wants_json():
        common.emit_json(found)
        return
    recorded = found.pop("about")
    for key, value in found.items():
        if value != []:
            typer.echo(f"{key.replace('_', ' ')}: {in_words(value)}")
    if recorded:
        typer.echo("made with:")
    for line in recorded:
        typer.echo(f"  {line}")


def _report(calibration: Calibration, out: Path) -> None:
    show_tables(calibration, out)
    common.finish(out, then=f"reweigh describe MODEL PICTURE --table {common.quoted(out)}")


def show_tables(
    calibration: Calibration, out: Path, more: Mapping[str, Any] | None = None, said: str = ""
) -> None:
    """Print facts about each table that was written; ``more`` (JSON) and ``said`` (text) add to them."""
    from reweigh.tables.store import file_name

    count, warnings = calibration.observations.image_count, calibration.warnings()
    rows = [
        {
            "layer": layer,
            "b0": table.b0,
            "registered": len(table),
            "file": str(out / file_name(layer)),
            **({"matched": table.about["matched"]} if "matched" in table.about else {}),
            **({"warning": warnings[layer]} if layer in warnings else {}),
        }
        for layer, table in calibration.tables.items()
    ]
    common.show(
        {"images": count, **(more or {}), "tables": rows},
        lambda: _print_tables(f"{count} images{said}", rows),
    )


def _print_tables(head: str, rows: list[dict[str, Any]]) -> None:
    typer.echo(head)
    for row in rows:
        typer.echo(
            f"layer {row['layer']}: b0 = {row['b0']:.6g}, {row['registered']:,} tokens registered -> {row['file']}"
        )
        if "matched" in row:
            typer.echo(
                "  b0 matched to DMRR's mean edit {target:.6g}, residual {residual:.2g}".format(
                    **row["matched"]
                )
            )
        if "warning" in row:
            typer.echo(f"warning: layer {row['layer']}: {row['warning']}", err=True)
