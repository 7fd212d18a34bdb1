"""``reweigh ablate``: the method with one thing changed at a time, all on the same records and the same evidence."""

from __future__ import annotations

from pathlib import Path

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import BenchmarkOptions
from reweigh.cli.groups import grouped

app = typer.Typer(add_completion=False)

FILES = ("ablation.md", "report.html", "ablation.json")


@app.command()
@grouped
def ablate(
    model: str = typer.Argument(
        common.WORLD, help="Hub id or checkpoint folder; the embedded model if not given."
    ),
    *,
    arms: str = typer.Option(
        "global,shuffled,mismatched,cyclic,blind,no-abstention,bidirectional,unbounded,count-5,count-10",
        help="Arms, separated by commas; the base and the full method are always there.",
    ),
    calibration: Path = typer.Option(
        None,
        help="Images that the table was calibrated on, for arms of readouts; drawn for `world` if not given.",
    ),
    shuffles: int = typer.Option(10, min=1, help="Permutations of the references, by seeds 0, 1, 2 ..."),
    benchmark: str = typer.Option("world", "--benchmark", "-b", help="world or chair."),
    out: Path = typer.Option(
        Path("ablation"), "--out", "-o", help="Folder; a stopped ablation goes on there."
    ),
    selection: BenchmarkOptions,
    point: common.Point,
    weights: common.Weights,
    cache: Path = common.CACHE,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Change one thing of the method at a time: figures, differences to the full method, and what the edits were like."""
    from reweigh.artifacts import only_one, write_json, write_text
    from reweigh.decoders.reweigh import operating_point
    from reweigh.engines.cache import EvidenceCache
    from reweigh.engines.transformers.pairing import pair
    from reweigh.families.anatomy import find_anatomy
    from reweigh.studies.ablate.arms import make_arms, parse_arms, readout_of, registered_sets
    from reweigh.studies.ablate.study import ablate as run
    from reweigh.studies.ablate.study import observations_beside
    from reweigh.studies.ablate.table import EXPLAINED, FIGURES, PARTS, build_json, build_page, build_table
    from reweigh.studies.paper.prepare import calibration_images, readouts_of

    kinds = parse_arms(arms)
    task = selection.task(benchmark, drawings=out / "pictures")
    task.require(FIGURES, "an ablation")
    task.require_records()
    where = point.of(model)
    loaded = weights.load(model)
    anatomy = find_anatomy(loaded[0])
    chosen, _ = pair(anatomy, loaded[1], where, layer=point.layer, force=force)
    bound = operating_point(anatomy, chosen, point.beta).beta
    runs = selection.runs(task, model, weights, loaded)
    readouts = None
    if any(readout_of(kind) for kind in kinds):
        images = calibration_images(chosen, calibration, out / "calibration", world=model == common.WORLD)
        readouts = readouts_of(loaded, chosen, images, out / "corpus", runs)
    made, left_out = make_arms(
        kinds,
        chosen,
        records=len(task.records),
        vocab_size=anatomy.vocab_size,
        observations=observations_beside(where),
        shuffles=shuffles,
        seed=selection.seed,
        readouts=readouts,
    )
    for kind, why in left_out.items():
        typer.echo(f"{kind} is left out: {why}", err=True)
    sets = registered_sets(kinds, chosen, readouts)
    with only_one(out):
        kept = EvidenceCache(folder=cache or out / "evidence")
        rows = run(*loaded, made, chosen, runs, out, beta=bound, cache=kept, force=force)
    about = {
        "model": model,
        "benchmark": task.metadata,
        "records": len(task.records),
        "layer": chosen.layer,
        "beta": bound,
        "table_sha256": chosen.fingerprint,
        "seed": selection.seed,
    }
    lead = f"{model}, {len(task.records):,} records of {benchmark}, layer {chosen.layer}, beta {bound:g}."
    sheet = build_table(
        rows, f"{lead} Δ is arm minus full method, with paired image-bootstrap 95% intervals."
    )
    about["registered"] = {arm.name: len(arm.table) for arm in made}
    found = build_json(rows, about, left_out)
    write_text(out / FILES[0], f"{sheet.markdown()}{' '.join([EXPLAINED, *sets])}\n")
    write_text(out / FILES[1], build_page(rows, lead, sheet.caption, left_out))
    write_json(out / FILES[2], found)
    if as_json:
        common.emit_json(found)
    else:
        for names in PARTS:
            common.console().print(build_table(rows, "", names=names).terminal())
        typer.echo(" ".join([sheet.caption, EXPLAINED, *sets]))
    common.note(f"written: {', '.join(str(out / name) for name in FILES)}")
