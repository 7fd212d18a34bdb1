"""``reweigh tune``: find layer and beta on records kept for choices, or on pictures without labels, by a stated rule."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.groups import grouped
from reweigh.errors import InputError
from reweigh.method.register.point import POINT

if TYPE_CHECKING:
    from reweigh.runs.task import Task
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
    pictures: Path = typer.Option(
        None, help="Folder of pictures without labels: a verifier judges the mentions (experimental)."
    ),
    label_free: bool = typer.Option(
        False, "--label-free", help="Do so on the benchmark's records, as if they had no labels."
    ),
    lexicon: str = typer.Option(
        None, help="Whose object names are looked for without labels: world or chair (needs its data)."
    ),
    verifier: str = typer.Option(
        None, help="Another model that judges mentions; the model itself if not given."
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
    from reweigh.engines.cache import EvidenceCache
    from reweigh.method.intervene.edit import check_beta
    from reweigh.method.register.folders import table_layers
    from reweigh.method.register.table import ReferenceTable
    from reweigh.studies.tune.report import build_json, build_page, build_table
    from reweigh.studies.tune.search import RULE, parse_numbers
    from reweigh.studies.tune.study import tune as run

    strengths = [check_beta(beta) for beta in parse_numbers(betas, float, "betas")]
    free = label_free or pictures is not None
    if not free and (lexicon or verifier):
        raise InputError("--lexicon and --verifier are for tuning without labels", hint="add --pictures DIR")
    task = _task(benchmark, pictures, selection, out, free=free)
    where = common.table_of(model, table)
    blocks = table_layers(Path(where)) if layers is None else parse_numbers(layers, int, "layers")
    tables = {block: ReferenceTable.from_pretrained(where, layer=block) for block in blocks}
    loaded = weights.load(model)
    runs = selection.runs(task, model, weights, loaded)
    with only_one(out):
        options: dict[str, Any] = {"betas": strengths, "bound": bound}
        options |= {"cache": EvidenceCache(folder=cache or out / "evidence"), "force": force}
        judged = None
        if free:
            from reweigh.studies.tune.labelfree.run import tune_free

            names = lexicon or ("world" if model == common.WORLD else "chair")
            other = None if verifier is None else (*weights.load(verifier), verifier)
            judged = tune_free(
                *loaded, tables, runs, out, lexicon=names, data=selection.data, verifier=other, **options
            )
            found = judged.found
        else:
            found = run(*loaded, tables, runs, out, **options)
    chosen_on = {
        "benchmark": task.name,
        "options": task.metadata["options"],
        "limit": selection.limit,
        "seed": selection.seed,
        "records": len(task.records),
        "bound": bound,
        "rule": RULE,
        "table_sha256": {str(layer): one.fingerprint for layer, one in tables.items()},
    }
    if judged is not None:
        chosen_on["verifier"] = judged.to_json()
    point = build_json(found, chosen_on)
    lead = f"{model}, {len(task.records):,} records of {task.name}, F1 may fall by {bound:g} points."
    advice = _advice(found, model, None if table is None else where)
    if judged is not None:
        lead += " Experimental: a verifier's denial stands for a hallucinated mention; no label was read."
        advice = judged.in_words() if judged.trust.refusal() else f"{judged.in_words()}\n{advice}"
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


def _task(
    benchmark: str, pictures: Path | None, selection: BenchmarkOptions, out: Path, *, free: bool
) -> Task:
    """The records of the search: a benchmark's, kept for choices, or those of a folder of pictures."""
    from reweigh.benchmarks import find_benchmark
    from reweigh.studies.tune.search import FIGURES

    if pictures is not None:
        from reweigh.studies.tune.labelfree.pictures import open_pictures

        task = open_pictures(pictures, limit=selection.limit)
    else:
        preset = find_benchmark(benchmark).tuning_options
        task = selection.task(benchmark, drawings=out / "pictures", preset=preset)
    if not free:
        task.require(FIGURES, "tuning")
    task.require_records()
    return task


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
