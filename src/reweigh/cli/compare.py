"""``reweigh compare``: every decoder on the same records, then one table of figures and cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.bench.base import Benchmark, Item, Summary
    from reweigh.compare.methods import Method
    from reweigh.compare.table import Comparison

app = typer.Typer(add_completion=False)

FILES = ("comparison.md", "comparison.html", "comparison.tex", "comparison.json")


@app.command()
@grouped
def compare(
    model: str = common.MODEL,
    *,
    methods: str = typer.Option(
        "base,vcd,opera,dola,pai,revisit,reweigh", "--methods", "-m", help="Decoders, separated by commas."
    ),
    benchmark: list[str] = typer.Option(
        ["world"], "--benchmark", "-b", help="world, chair, amber-generative, pope ...; may be repeated."
    ),
    out: Path = typer.Option(Path("comparison"), "--out", help="Folder; a stopped comparison goes on there."),
    data: Path = typer.Option(None, help="Folder of the benchmark's files (of a single benchmark)."),
    images: Path = typer.Option(None, help="Folder of the images, if they lie elsewhere."),
    option: list[str] = typer.Option([], "--option", "-o", help="Option of the benchmark, name=value."),
    method_option: list[str] = typer.Option(
        [], help="Option of a method, method.option=value; may be repeated."
    ),
    table: str = common.TABLE,
    beta: float = common.BETA,
    layer: int = common.LAYER,
    limit: int = typer.Option(None, help="Only the first records of each benchmark."),
    batch_size: int = typer.Option(1, help="Images answered at once; the paper uses 1."),
    seed: int = typer.Option(42, help="Seed of whatever is drawn."),
    template: str = common.TEMPLATE,
    weights: common.Weights,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Answer the same records with every method, score them, and write one table with cost as ratios to greedy."""
    from reweigh.artifacts import write_json, write_text
    from reweigh.compare.methods import make_method, parse_methods, parse_options
    from reweigh.decoders import DECODERS

    names = parse_methods(methods, list(DECODERS))
    options = parse_options(method_option, names)
    if data is not None and len(benchmark) > 1:
        raise InputError(
            "--data names the files of one benchmark, but several are compared", hint="leave it out"
        )
    prepared = [_prepare(name, data, images, option, limit, seed, out) for name in benchmark]
    if "reweigh" in names:
        where, block, bound = common.operating_point(model, table, layer, beta)
        options["reweigh"] = {
            "table": where,
            "layer": block,
            "beta": bound,
            "force": force,
            **options["reweigh"],
        }
    loaded, processor = weights.load(model)
    rows = [make_method(name, loaded, processor, options[name]) for name in names]
    for method in rows:
        if method.reason:
            typer.echo(f"{method.name} is left out: {method.reason}", err=True)
    told = {"id": model, "revision": weights.revision, "dtype": weights.dtype}
    scored = [
        _answer_and_score(
            one, rows, (loaded, processor), out, told, batch_size=batch_size, seed=seed, template=template
        )
        for one in prepared
    ]
    made = build(model, rows, scored, out)
    write_text(out / FILES[0], made.markdown())
    write_text(out / FILES[1], made.html())
    write_text(out / FILES[2], made.latex())
    write_json(out / FILES[3], made.to_json())
    if as_json:
        common.emit_json(made.to_json())
    else:
        common.console().print(made.terminal())
    typer.echo(f"tables: {', '.join(str(out / name) for name in FILES)}", err=True)


class Prepared:
    """A benchmark with its records and the folder of its images."""

    def __init__(
        self, name: str, bench: Benchmark, records: list[Any], images: Path, told: dict[str, Any]
    ) -> None:
        self.name = name
        self.bench = bench
        self.records = records
        self.images = images
        self.told = told


def _prepare(
    name: str,
    data: Path | None,
    images: Path | None,
    option: list[str],
    limit: int | None,
    seed: int,
    out: Path,
) -> Prepared:
    import inspect

    from reweigh.bench.base import BENCHMARKS
    from reweigh.cli.benchmarks import image_folder, open_benchmark

    if "judge" in inspect.signature(BENCHMARKS[name]).parameters:
        raise InputError(
            f"{name} is scored by a judge model, which a comparison does not ask",
            hint="reweigh eval run and reweigh eval score, once for each decoder",
        )
    folder = out / "pictures" if name == "world" and data is None else data
    bench, options, place = open_benchmark(name, folder, option)
    pictures = image_folder(name, place, images)
    records = bench.records(limit=limit, seed=seed)
    if not records:
        raise InputError(f"{name} has no records to answer", hint="check --limit and --option")
    return Prepared(name, bench, records, pictures, {"name": name, "options": options, "limit": limit})


def _answer_and_score(
    one: Prepared,
    methods: list[Method],
    loaded: tuple[Any, Any],
    out: Path,
    model: dict[str, Any],
    *,
    batch_size: int,
    seed: int,
    template: str | None,
) -> tuple[str, dict[str, tuple[list[Item], Summary]]]:
    from reweigh.bench import score as scoring
    from reweigh.bench.describer import describe_model
    from reweigh.bench.record import make_record, only_one, open_run
    from reweigh.compare.run import answer_all

    served = [method for method in methods if method.attached is not None]
    folders = [out / one.name / method.name for method in served]
    with only_one(out):
        for method, folder in zip(served, folders, strict=True):
            folder.mkdir(parents=True, exist_ok=True)
            record = make_record(
                benchmark={**one.told, "shard": "1/1"},
                model=model | describe_model(*loaded),
                decoding=method.told() | {"batch_size": batch_size, "template": template},
                records=one.records,
                images=one.images,
                seed=seed,
                places={"images": str(one.images.resolve())},
            )
            open_run(folder, record, one.records)
        answer_all(
            served,
            one.records,
            folders,
            images=one.images,
            batch_size=batch_size,
            seed=seed,
            template=template,
        )
    found = {}
    for method, folder in zip(served, folders, strict=True):
        source = scoring.read_sources([folder])
        items, summary = scoring.score(one.bench, source)
        scoring.write_scores(folder, items, summary, source)
        found[method.name] = (items, summary)
    return one.name, found


def build(
    model: str,
    methods: list[Method],
    scored: list[tuple[str, dict[str, tuple[list[Item], Summary]]]],
    out: Path,
) -> Comparison:
    """Put figures and cost of all methods into one table."""
    from reweigh.bench.score import direction
    from reweigh.compare.cost import total
    from reweigh.compare.run import read_costs
    from reweigh.compare.table import Comparison, Figure, Row, cost_figures, ratios
    from reweigh.report.evaluation import TITLES, headlines, label

    figures: list[Figure] = []
    keys: list[tuple[int, str]] = []
    for place, (name, found) in enumerate(scored):
        metrics = next(iter(found.values()))[1].metrics
        for metric in headlines(name, list(metrics)):
            figures.append(Figure(TITLES.get(name, name), label(metric), direction(metric)))
            keys.append((place, metric))
    costs = {}
    for method in methods:
        every = [cost for name, _ in scored for cost in read_costs(out / name / method.name)]
        whole = total(every)
        costs[method.name] = {
            "latency": None if whole is None else whole.seconds_per_token,
            "memory": None if whole is None or whole.peak is None else float(whole.peak),
        }
    rows = []
    for method in methods:
        values: list[float | None] = []
        for place, metric in keys:
            pair = scored[place][1].get(method.name)
            values.append(None if pair is None else pair[1].metrics[metric].value)
        values += ratios(costs[method.name], costs[methods[0].name])
        regime = method.regime_in_words() if method.attached is not None else ""
        rows.append(Row(method.title, values, regime, method.reason))
    counts = ", ".join(f"{next(iter(found.values()))[1].n:,} records of {name}" for name, found in scored)
    per_token = costs[methods[0].name]["latency"]
    speed = "" if per_token is None else f" Greedy takes {1000 * per_token:.2f} ms per token here."
    note = f"{counts}. Lat. and Mem. are time per token and peak memory over greedy's, taken in turns in one run.{speed}"
    return Comparison(model, [*figures, *cost_figures()], rows, [note])
