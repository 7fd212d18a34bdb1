"""``reweigh eval``: answer a benchmark, score answers, compare two runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.benchmark import DATA, IMAGES, OPTION, BenchmarkOptions, JudgeOptions
from reweigh.cli.cluster import RayOptions, loading
from reweigh.cli.groups import grouped
from reweigh.errors import InputError, UnknownNameError
from reweigh.options import parse_options

if TYPE_CHECKING:
    from reweigh.runs.results import ScoredRun
    from reweigh.runs.task import Task


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benchmarks: generate, score, compare.")


@app.command()
@grouped
def run(
    model: str = common.MODEL,
    *,
    benchmark: str = typer.Option(
        ..., "--benchmark", "-b", help="chair, amber-generative, pope, mmhal, mmvet ..."
    ),
    out: Path = typer.Option(..., "--out", "-o", help="Run folder; a stopped run resumes there."),
    records: BenchmarkOptions,
    decoder: str = typer.Option("reweigh", help="base, reweigh, or the name of another decoder."),
    decoder_option: list[str] = typer.Option([], help="Option of the decoder, as name=value; repeatable."),
    point: common.Point,
    shard: str = typer.Option("1/1", help="Part i of n of the records, as i/n."),
    cache: Path = common.CACHE,
    cluster: RayOptions,
    weights: common.Weights,
    force: bool = common.FORCE,
    as_json: bool = common.JSON,
) -> None:
    """Answer every record of a benchmark; a stopped run resumes."""
    from reweigh.files.artifacts import only_one
    from reweigh.runs.model import make_ask, open_session

    task = records.task(benchmark, shard=shard)
    options = parse_options(decoder_option)
    given = _decoder_options(decoder, options, model, point, cache, force=force)
    if cluster.ray is not None:
        new = _on_ray(model, task, records, decoder, given, cluster, weights, out)
    else:
        loaded = weights.load(model)
        session = open_session(*loaded, decoder, given)
        with only_one(out):
            runs = records.runs(task, model, weights, loaded)
            new = runs.answer(make_ask(session, template=records.template), out, session.record())
    count = len(task.records)
    if as_json:
        common.emit_json({"out": str(out), "answered_now": new, "records": count})
        return
    common.note(f"{new} new answers, {count} of {count} in total")
    typer.echo(out)


@app.command()
@grouped
def score(
    sources: list[Path] = typer.Argument(help="A run folder, all its shards, or response files of any tool."),
    *,
    benchmark: str = typer.Option(
        None, "--benchmark", "-b", help="chair, amber-generative, mmhal ...; a run folder knows its own."
    ),
    data: Path | None = DATA,
    images: Path | None = IMAGES,
    option: list[str] = OPTION,
    out: Path = typer.Option(None, "--out", "-o", help="Folder for the results; by default the run folder."),
    partial: bool = typer.Option(
        False,
        "--allow-missing",
        "--partial",
        help="Score an unfinished run, or a file with missing answers.",
    ),
    id_key: str = typer.Option(None, help="Key of the id in a response file."),
    text_key: str = typer.Option(None, help="Key of the text in a response file."),
    judging: JudgeOptions,
    as_json: bool = common.JSON,
) -> None:
    """Score responses; needs no model. Writes items.jsonl, results.json and report.html."""
    from reweigh.results.evaluation import write_report
    from reweigh.runs.score import score_paths

    run = score_paths(
        sources,
        benchmark=benchmark,
        data=data,
        options=parse_options(option),
        out=out,
        partial=partial,
        id_key=id_key,
        text_key=text_key,
        judge=judging.settings(),
    )
    page = write_report(run, data=data, images=images)
    _print_caveats(run)
    if as_json:
        common.emit_json(run.results)
    else:
        _print_score(run)
        common.note(f"page: {page}")


@app.command()
def diff(
    first: Path = typer.Argument(help="Scored run folder, e.g. of the base model."),
    second: Path = typer.Argument(help="Scored run folder to compare with it."),
    out: Path = typer.Option(None, "--out", "-o", help="File for a page with both runs side by side."),
    images: Path | None = IMAGES,
    judge: str = typer.Option("chat", help="Which judge's scores to compare: chat or systemone."),
    as_json: bool = common.JSON,
) -> None:
    """Compare two scored runs: removed, introduced and kept hallucinations, paired intervals."""
    from reweigh.benchmarks.judge.settings import KINDS
    from reweigh.results.comparison import difference_table, mention_table, write_comparison
    from reweigh.runs.diff import diff_runs

    if judge not in KINDS:
        raise UnknownNameError("judge", judge, KINDS)
    pair = diff_runs(first, second, judge=judge)
    if out is not None:
        write_comparison(out, pair, images=images)
        common.note(f"page: {out}")
    if as_json:
        common.emit_json(pair.difference.to_json())
        return
    console = common.console()
    console.print(difference_table(pair.difference, pair.titles))
    if (table := mention_table(pair.difference)) is not None:
        console.print(table)


@app.command()
def words(
    folder: Path = typer.Argument(help="Scored run folder."),
    count: int = typer.Option(10, min=1, help="How many objects."),
    out: Path = typer.Option(None, "--out", "-o", help="File for the words, one per line."),
    as_json: bool = common.JSON,
) -> None:
    """List the objects that a run hallucinates most often, e.g. for `projectaway.erase`."""
    from reweigh.files.artifacts import write_text
    from reweigh.results.table import Column, Table
    from reweigh.runs.hallucinated import hallucinated_objects
    from reweigh.runs.results import read_scored

    found = hallucinated_objects(read_scored(folder).items)[:count]
    if out is not None:
        write_text(out, "".join(f"{one.name}\n" for one in found))
        common.note(f"words: {out}")
    if as_json:
        common.emit_json([asdict(one) for one in found])
        return
    columns = [Column("object"), Column("hallucinated", digits=0), Column("mentions", digits=0)]
    common.console().print(Table(columns, [[one.name, one.hallucinated, one.mentions] for one in found]))


@app.command("amber-score")
def amber_score(
    generative: Path = typer.Argument(help="Scored run folder of amber-generative."),
    discriminative: Path = typer.Argument(help="Scored run folder of amber-discriminative."),
    as_json: bool = common.JSON,
) -> None:
    """Compute the AMBER score, ((100 - CHAIR) + F1) / 2, of two scored runs."""
    from reweigh.benchmarks.amber.score import amber_score as compute
    from reweigh.benchmarks.amber.score import require_halves
    from reweigh.runs.results import read_scored

    descriptions, answers = read_scored(generative), read_scored(discriminative)
    require_halves(descriptions.benchmark, answers.benchmark)
    metric = compute(descriptions.items, answers.items)
    if as_json:
        common.emit_json({"amber_score": metric.to_json()})
    elif metric.value is None:
        typer.echo(f"undefined: {metric.reason}")
    else:
        interval = "" if metric.low is None else f" [{metric.low:.2f}, {metric.high:.2f}]"
        typer.echo(f"AMBER score {metric.value:.2f}{interval}")


def _on_ray(
    model: str,
    task: Task,
    records: BenchmarkOptions,
    decoder: str,
    given: dict[str, Any],
    cluster: RayOptions,
    weights: common.Weights,
    out: Path,
) -> int:
    """Answer with the actors of a cluster."""
    from reweigh.runs.on_ray import answer_on

    if "cache" in given:
        raise InputError(
            "--cache is a folder on this machine and cannot be used with --ray", hint="leave it out"
        )
    options = {**given}
    if (table := options.get("table")) is not None and Path(table).is_dir():
        options["table"] = str(Path(table).resolve())
    runs = records.runs(task, model, weights)
    arguments = {
        **loading(model, weights),
        "decoder": decoder,
        "options": options,
        "template": records.template,
    }
    return answer_on(cluster.cluster(), arguments, runs, out)


def _decoder_options(
    decoder: str,
    options: dict[str, Any],
    model: str,
    point: common.Point,
    cache: Path | None,
    *,
    force: bool,
) -> dict[str, Any]:
    """The decoder's options; table, layer, beta and cache are only for ReWEIGH."""
    from reweigh.rivals import DECODERS, check_options

    if DECODERS[decoder].needs_table:
        given = {**point.options(model), "force": force, **options}
        if cache is not None:
            from reweigh.runtime.memory import EvidenceCache

            given["cache"] = EvidenceCache(folder=cache)
        check_options(decoder, DECODERS[decoder], given)
        return given
    for name, value in {**asdict(point), "cache": cache}.items():
        if value is not None:
            raise InputError(f"the decoder {decoder!r} has no option --{name}", hint="leave it out")
    check_options(decoder, DECODERS[decoder], options)
    return options


def _print_score(run: ScoredRun) -> None:
    from reweigh.benchmarks import find_benchmark
    from reweigh.results.metrics import figure_table

    summary = run.results["summary"]
    judge = run.judging.get("judge", {}).get("model")
    rated = f", rated by {judge}" if judge else ""
    counted = f"{summary['n']:,} responses on {summary['images']:,} images"
    caption = f"{find_benchmark(run.benchmark).heading()}, {run.title}: {counted}{rated}"
    common.console().print(figure_table(run.benchmark, run.metrics, caption))


def _print_caveats(run: ScoredRun) -> None:
    """Warn about missing or unreadable answers, and about a scorer that differs from the official one."""
    samples = run.results["n-samples"][run.benchmark]
    if samples["effective"] < samples["original"]:
        typer.echo(f"only {samples['effective']:,} of {samples['original']:,} records were scored", err=True)
    scorer = run.results["summary"]["scorer"]
    if unparsed := scorer.get("unparsed"):
        typer.echo(f"{unparsed} replies could not be read", err=True)
    if note := (scorer.get("similarity") or {}).get("note"):
        typer.echo(f"similarity differs from the official scorer's: {note}", err=True)
