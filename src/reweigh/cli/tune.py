"""``reweigh tune``: find layer and beta on records kept for choices, by a stated rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.groups import grouped
from reweigh.method.register.point import POINT

if TYPE_CHECKING:
    from reweigh.studies.tune.search import Found

app = typer.Typer(add_completion=False)

FILES = (POINT, "report.html")


@app.command()
@grouped
def tune(
    model: str = typer.Argument(
        common.WORLD, help="Hub id or checkpoint folder; the embedded model if not given."
    ),
    *,
    layers: str = typer.Option(None, help="Layers, separated by commas; those of the table if not given."),
    betas: str = typer.Option("0.5,0.7,0.9,1.1,1.3", help="Strengths of the grid, separated by commas."),
    bound: float = typer.Option(0.5, min=0.0, help="Largest loss of F1 that is accepted, in points."),
    benchmark: str = typer.Option(
        "world",
        "--benchmark",
        "-b",
        help="world (300 scenes of its tuning split) or chair (images of its train split).",
    ),
    out: Path = typer.Option(Path("tuning"), "--out", "-o", help="Folder; a stopped search goes on there."),
    selection: BenchmarkOptions,
    table: str = common.TABLE,
    weights: common.Weights,
    cache: Path = common.CACHE,
    record: bool = typer.Option(
        True,
        "--record/--no-record",
        help="Write the point into the folder given by --table, where attach finds it.",
    ),
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Try layers and betas, judge CHAIR_S, CHAIR_I, recall and F1 together, and say which point to use."""
    from reweigh.artifacts import only_one, write_json, write_text
    from reweigh.benchmarks import find_benchmark
    from reweigh.engines.cache import EvidenceCache
    from reweigh.method.intervene.edit import check_beta
    from reweigh.method.register.table import ReferenceTable, table_layers
    from reweigh.studies.tune.report import build_json, build_page, build_table
    from reweigh.studies.tune.search import FIGURES, RULE, parse_numbers
    from reweigh.studies.tune.study import tune as run

    strengths = [check_beta(beta) for beta in parse_numbers(betas, float, "betas")]
    task = selection.task(
        benchmark, drawings=out / "pictures", preset=find_benchmark(benchmark).tuning_options
    )
    task.require(FIGURES, "tuning")
    task.require_records()
    where = common.table_of(model, table)
    blocks = table_layers(Path(where)) if layers is None else parse_numbers(layers, int, "layers")
    tables = {block: ReferenceTable.from_pretrained(where, layer=block) for block in blocks}
    loaded = weights.load(model)
    runs = selection.runs(task, model, weights, loaded)
    with only_one(out):
        kept = EvidenceCache(folder=cache or out / "evidence")
        found = run(*loaded, tables, runs, out, betas=strengths, bound=bound, cache=kept, force=force)
    chosen_on = {
        "benchmark": benchmark,
        "options": task.metadata["options"],
        "limit": selection.limit,
        "seed": selection.seed,
        "records": len(task.records),
        "bound": bound,
        "rule": RULE,
        "table_sha256": {str(layer): one.fingerprint for layer, one in tables.items()},
    }
    point = build_json(found, chosen_on)
    lead = f"{model}, {len(task.records):,} records of {benchmark}, F1 may fall by {bound:g} points."
    advice = _advice(found, model, None if table is None else where)
    sheet = build_table(found, f"{lead} The gain is the mean of the four relative improvements.")
    write_json(out / FILES[0], point)
    write_text(out / FILES[1], build_page(found, sheet, lead, advice))
    if record and table is not None and Path(table).is_dir():
        write_json(Path(table) / POINT, point)
    if as_json:
        common.emit_json(point)
    else:
        common.console().print(sheet.terminal())
        typer.echo(advice)
    typer.echo(f"written: {', '.join(str(out / name) for name in FILES)}", err=True)


def _advice(found: Found, model: str, table: str | None) -> str:
    """How to use what was found, and whether the grid was wide enough to tell."""
    from reweigh.studies.tune.search import edge

    if found.chosen is None:
        return (
            "No point improves on the base within the bound: use the base model, or calibrate on more images."
        )
    named = "" if table is None else f" --table {table}"
    point = f"--layer {found.chosen.layer} --beta {found.chosen.beta:g}"
    advice = f"use it: reweigh describe {model} IMAGE{named} {point}"
    if (end := edge(found)) is not None:
        advice += (
            f"\nthe chosen beta is the {end} that was tried: a better one may lie beyond it; widen --betas"
        )
    return advice
