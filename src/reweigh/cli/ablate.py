"""``reweigh ablate``: the method with one thing changed at a time, all on the same records and the same evidence."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.asking import Asked
from reweigh.cli.groups import grouped

if TYPE_CHECKING:
    from reweigh.method.register.observations import Observations
    from reweigh.runs.task import Runs
    from reweigh.studies.ablate.arms import Arm
    from reweigh.studies.ablate.table import Row

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
    shuffles: int = typer.Option(10, min=1, help="Permutations of the references, by seeds 0, 1, 2 ..."),
    benchmark: str = typer.Option("world", "--benchmark", "-b", help="world or chair."),
    out: Path = typer.Option(Path("ablation"), "--out", help="Folder; a stopped ablation goes on there."),
    asked: Asked,
    point: common.Point,
    weights: common.Weights,
    cache: Path = common.CACHE,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Change one thing of the method at a time: figures, differences to the full method, and what the edits were like."""
    from reweigh.artifacts import write_json, write_text
    from reweigh.engines.cache import EvidenceCache
    from reweigh.families.anatomy import find_anatomy
    from reweigh.method.register.table import ReferenceTable
    from reweigh.runs.record import only_one
    from reweigh.studies.ablate.arms import make_arms, parse_arms
    from reweigh.studies.ablate.run import Witness
    from reweigh.studies.ablate.table import EXPLAINED, FIGURES, PARTS, build_json, build_page, build_table

    kinds = parse_arms(arms)
    task = asked.task(benchmark, beside=out / "pictures")
    task.require(FIGURES, "an ablation")
    task.require_records()
    where, block, bound = point.of(model)
    loaded = weights.load(model)
    chosen = ReferenceTable.from_pretrained(where, layer=block)
    made, left_out = make_arms(
        kinds,
        chosen,
        records=len(task.records),
        vocab_size=find_anatomy(loaded[0]).vocab_size,
        observations=_observations(where),
        shuffles=shuffles,
        seed=asked.seed,
    )
    for kind, why in left_out.items():
        typer.echo(f"{kind} is left out: {why}", err=True)
    runs = asked.runs(task, model, weights, loaded)
    with only_one(out):
        kept = EvidenceCache(folder=cache or out / "evidence")
        witness = Witness(*loaded, chosen, runs, kept, force=force)
        rows = _answer(loaded, made, witness, runs, bound, out, force=force)
    about = {
        "model": model,
        "benchmark": task.told,
        "records": len(task.records),
        "layer": chosen.layer,
        "beta": bound,
        "table_sha256": chosen.fingerprint,
        "seed": asked.seed,
    }
    lead = f"{model}, {len(task.records):,} records of {benchmark}, layer {chosen.layer}, beta {bound:g}."
    shown = build_table(
        rows, f"{lead} Δ is arm minus full method, with paired image-bootstrap 95% intervals."
    )
    found = build_json(rows, about, left_out)
    write_text(out / FILES[0], f"{shown.markdown()}{EXPLAINED}\n")
    write_text(out / FILES[1], build_page(rows, lead, shown.caption, left_out))
    write_json(out / FILES[2], found)
    if as_json:
        common.emit_json(found)
    else:
        for names in PARTS:
            common.console().print(build_table(rows, "", names=names).terminal())
        typer.echo(f"{shown.caption} {EXPLAINED}")
    typer.echo(f"written: {', '.join(str(out / name) for name in FILES)}", err=True)


def _answer(
    loaded: tuple[Any, Any],
    arms: list[Arm],
    witness: Any,
    runs: Runs,
    beta: float,
    out: Path,
    *,
    force: bool,
) -> list[Row]:
    """Answer the base and every arm under one bar, and score them."""
    from reweigh.progress import bar
    from reweigh.runs.describer import make_describer
    from reweigh.studies.ablate.run import asking_arm, attach_arm, read_edits, told_of
    from reweigh.studies.ablate.table import BASE, Row

    kinds = {BASE: BASE, **{arm.name: arm.kind for arm in arms}}
    folders = {name: out / "runs" / name for name in kinds}
    done = sum(runs.done(folder) for folder in folders.values())
    total = len(folders) * len(runs.task.records)
    with bar("ablating", total=total, done=done, unit="answer") as shown:
        base, decoding = make_describer(*loaded, BASE, {}, template=runs.template)
        runs.answer(base, folders[BASE], decoding, shown=shown)
        for arm in arms:
            shown.set_description(arm.name)
            folder = folders[arm.name]
            attached = attach_arm(*loaded, arm, beta, force=force)
            ask = asking_arm(attached, arm, witness, folder, template=runs.template)
            runs.answer(ask, folder, told_of(arm, beta), shown=shown)
    scored = {name: runs.score(folder) for name, folder in folders.items()}
    full = scored["full"]
    return [Row.of(name, kind, scored[name], full, read_edits(folders[name])) for name, kind in kinds.items()]


def _observations(table: str) -> Observations | None:
    """The observations kept in a calibration folder, which the table's folder is or lies in."""
    from reweigh.calibration.result import MANIFEST, Calibration

    for folder in (Path(table), Path(table).parent):
        if (folder / MANIFEST).is_file():
            return Calibration.load(folder).observations
    return None
