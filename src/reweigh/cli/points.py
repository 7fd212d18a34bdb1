"""``reweigh points``: the operating points of the paper, and what a model not in it would take over."""

from __future__ import annotations

from dataclasses import asdict

import typer

from reweigh.cli import common

app = typer.Typer(add_completion=False)


@app.command()
def points(json: bool = common.JSON) -> None:
    """List the paper's layers and betas; a table's own tuned point comes before them."""
    from reweigh.families.points import PUBLISHED
    from reweigh.results.tables import Cell, Column, Table

    if json:
        common.emit_json([asdict(point) for point in PUBLISHED])
        return
    columns = [Column("model"), Column("family"), Column("blocks", digits=0), Column("layer", digits=0)]
    columns += [Column("beta", digits=1), Column("source")]
    rows: list[list[Cell]] = [
        [point.model, point.family, point.blocks, point.layer, point.beta, point.source]
        for point in PUBLISHED
    ]
    note = "Another size of a family takes the nearest one's point, at the same distance from the last block."
    common.console().print(Table(columns, rows, note).terminal())
