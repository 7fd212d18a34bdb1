"""``reweigh eval``: answer a benchmark, score answers, compare two runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.asking import (
    DATA,
    IMAGES,
    OPTION,
    Asked,
    data_folder,
    image_finder,
    open_benchmark,
    option_values,
    run_places,
)
from reweigh.cli.groups import grouped
from reweigh.errors import InputError

if TYPE_CHECKING:
    from reweigh.benchmarks.base import Id


app = typer.Typer(no_args_is_help=True, add_completion=False, help="Benchmarks: generate, score, compare.")

BENCHMARK = typer.Option(
    None, "--benchmark", "-b", help="chair, amber-generative, mmhal ...; known from a run folder."
)


@app.command()
@grouped
def run(
    model: str = common.MODEL,
    *,
    benchmark: str = typer.Option(
        ..., "--benchmark", "-b", help="chair, amber-generative, pope, mmhal, mmvet ..."
    ),
    out: Path = typer.Option(..., "--out", help="Run folder; a run that was stopped goes on there."),
    asked: Asked,
    decoder: str = typer.Option("reweigh", help="base, reweigh, or the name of another decoder."),
    decoder_option: list[str] = typer.Option(
        [], help="An option of that decoder, as name=value; may be repeated."
    ),
    point: common.Point,
    shard: str = typer.Option("1/1", help="Part i of n of the records, as i/n."),
    cache: Path = common.CACHE,
    weights: common.Weights,
    force: bool = common.FORCE,
) -> None:
    """Answer every record of a benchmark; answers are written as they come, and a stopped run resumes."""
    from reweigh.runs.model import asking, open_session
    from reweigh.runs.record import only_one

    task = asked.task(benchmark, shard=shard)
    options = option_values(decoder_option)
    given = _decoder_options(decoder, options, model, point, cache, force=force)
    loaded = weights.load(model)
    session = open_session(*loaded, decoder, given)
    with only_one(out):
        runs = asked.runs(task, model, weights, loaded)
        new = runs.answer(asking(session, template=asked.template), out, session.record())
    count = len(task.records)
    typer.echo(f"{new} answered now, {count} of {count} in all", err=True)
    typer.echo(out)


@app.command()
def score(
    sources: list[Path] = typer.Argument(
        help="Run folder (or all its shards), or response files of any tool."
    ),
    benchmark: str = BENCHMARK,
    data: Path | None = DATA,
    images: Path | None = IMAGES,
    option: list[str] = OPTION,
    out: Path = typer.Option(None, help="Where the results go; by default into the run folder."),
    partial: bool = typer.Option(False, "--partial", help="Score a run that is not finished."),
    id_key: str = typer.Option(None, help="Key of the id in a response file."),
    text_key: str = typer.Option(None, help="Key of the text in a response file."),
    judge_model: str = typer.Option(None, help="Judge model; the paper's by default."),
    judge_url: str = typer.Option(None, help="Base URL of an OpenAI-compatible server."),
    judge_key: str = typer.Option("OPENAI_API_KEY", help="Environment variable that holds the judge's key."),
    judge_prompt: Path = typer.Option(None, help="File with the judge's prompt, if not with the data."),
    judge_cache: Path = typer.Option(None, help="Folder of kept verdicts."),
    rules: str = typer.Option(
        "strict", help="How a judge's reply is read: strict (the paper's) or official."
    ),
    concurrency: int = typer.Option(8, help="Questions put to the judge at once."),
    per_minute: float = typer.Option(None, help="Largest number of questions in a minute."),
    as_json: bool = common.JSON,
) -> None:
    """Score responses; needs no model. Writes items.jsonl, results.json and report.html."""
    from reweigh.benchmarks.mmhal import read_answers
    from reweigh.runs import score as scoring
    from reweigh.runs.record import RECORD

    for path in sources:
        if not path.exists():
            raise InputError(f"{path} does not exist", hint="give a run folder or a response file")
    target = out or (sources[0] if len(sources) == 1 and sources[0].is_dir() else None)
    if target is None:
        raise InputError("there is no place for the results", hint="name a folder with --out")
    if (target / RECORD).exists() and [target.resolve()] != [path.resolve() for path in sources]:
        raise InputError(f"{target} holds another run", hint="name a folder of its own with --out")
    official = read_answers(sources[0]) if benchmark == "mmhal" and len(sources) == 1 else None
    if official is not None:
        source = scoring.Source(official, (sources[0].stem,))
    else:
        source = scoring.read_sources(sources, id_key=id_key, text_key=text_key)
    kept = (source.record or {}).get("benchmark", {})
    data, images = run_places(source.record, data, images)
    name = benchmark or kept.get("name")
    if name is None:
        raise InputError("the benchmark is not known from a response file", hint="name it with --benchmark")
    judge = {
        "model": judge_model,
        "url": judge_url,
        "key": judge_key,
        "prompt": judge_prompt,
        "cache": judge_cache,
        "rules": rules,
        "concurrency": concurrency,
        "per_minute": per_minute,
    }
    bench, _, folder = open_benchmark(name, data, option, kept=kept.get("options", {}), judge=judge)
    try:
        items, summary = scoring.score(bench, source, partial=partial)
    finally:
        # Threads that wait for a judge would otherwise keep a stopped command alive.
        if (asked := getattr(bench, "judge", None)) is not None:
            asked.close()
    target.mkdir(parents=True, exist_ok=True)
    results = scoring.write_scores(target, items, summary, source)
    _write_report(target, results, items, source, image_finder(name, folder, images, source.manifest, items))
    _show_score(results, target, as_json=as_json)


@app.command()
def diff(
    first: Path = typer.Argument(help="Scored run folder, the base."),
    second: Path = typer.Argument(help="Scored run folder to hold against it."),
    out: Path = typer.Option(None, "--out", help="Write a page with both runs side by side here."),
    images: Path | None = IMAGES,
    as_json: bool = common.JSON,
) -> None:
    """Compare two scored runs item by item: removed, introduced and kept hallucinations, paired intervals."""
    from reweigh.artifacts import write_text
    from reweigh.report.comparison import comparison_page, difference_table, mention_table
    from reweigh.report.evaluation import run_name
    from reweigh.runs.diff import compare
    from reweigh.runs.score import read_items, read_metrics

    name, items, texts, results = read_items(first)
    other, later, later_texts, later_results = read_items(second)
    if name != other:
        raise InputError(
            f"{first} is a run of {name} and {second} one of {other}", hint="compare like with like"
        )
    found = compare(name, items, later, before=read_metrics(results), after=read_metrics(later_results))
    names = _tell_apart(run_name(results["config"]), run_name(later_results["config"]), first, second)
    if out is not None:
        from reweigh.runs.record import RECORD, read_run

        record, manifest = read_run(first) if (first / RECORD).is_file() else (None, [])
        data, images = run_places(record, None, images)
        find = image_finder(name, data_folder(name, data), images, manifest, items)
        write_text(out, comparison_page(found, (items, later), (texts, later_texts), names=names, find=find))
        typer.echo(f"page: {out}", err=True)
    if as_json:
        common.emit_json(found.to_json())
        return
    console = common.console()
    console.print(difference_table(found, names).terminal())
    if (table := mention_table(found)) is not None:
        console.print(table.terminal())


@app.command("amber-score")
def amber_score(
    generative: Path = typer.Argument(help="Scored run folder of amber-generative."),
    discriminative: Path = typer.Argument(help="Scored run folder of amber-discriminative."),
    as_json: bool = common.JSON,
) -> None:
    """Compute the AMBER score, ((100 - CHAIR) + F1) / 2, of two scored runs."""
    from reweigh.benchmarks.amber.score import amber_score as compute
    from reweigh.runs.score import read_items

    names, halves = [], []
    for folder in (generative, discriminative):
        name, items, _, _ = read_items(folder)
        names.append(name)
        halves.append(items)
    if names != ["amber-generative", "amber-discriminative"]:
        raise InputError(f"these are runs of {names[0]} and {names[1]}", hint="give the generative run first")
    metric = compute(*halves)
    if as_json:
        common.emit_json({"amber_score": metric.to_json()})
    elif metric.value is None:
        typer.echo(f"undefined: {metric.reason}")
    else:
        interval = "" if metric.low is None else f" [{metric.low:.2f}, {metric.high:.2f}]"
        typer.echo(f"AMBER score {metric.value:.2f}{interval}")


def _decoder_options(
    decoder: str,
    options: dict[str, Any],
    model: str,
    point: common.Point,
    cache: Path | None,
    *,
    force: bool,
) -> dict[str, Any]:
    """The decoder's options; table, layer, beta and cache are those of ReWEIGH and mean nothing to others."""
    from reweigh.decoders import DECODERS

    if DECODERS[decoder].needs_table:
        where, block, bound = point.of(model)
        given = {"table": where, "layer": block, "beta": bound, "force": force, **options}
        if cache is not None:
            from reweigh.engines.cache import EvidenceCache

            given["cache"] = EvidenceCache(folder=cache)
        return given
    for name, value in {**asdict(point), "cache": cache}.items():
        if value is not None:
            raise InputError(f"--{name} means nothing for the decoder {decoder!r}", hint="leave it out")
    return options


def _write_report(
    target: Path, results: Any, items: Any, source: Any, find: Callable[[Id], Path | None]
) -> None:
    from reweigh.artifacts import write_text
    from reweigh.report.evaluation import evaluation_page
    from reweigh.runs.record import REPORT

    texts = {row.id: row.text for row in source.responses}
    prompts = {row["id"]: row["prompt"] for row in source.manifest}
    write_text(target / REPORT, evaluation_page(results, items, texts, find=find, prompts=prompts))


def _show_score(results: dict[str, Any], target: Path, *, as_json: bool) -> None:
    from reweigh.report.evaluation import figure_table, run_name
    from reweigh.runs.record import REPORT
    from reweigh.runs.score import read_metrics

    if as_json:
        common.emit_json(results)
        return
    summary = results["summary"]
    caption = f"{run_name(results['config'])}: {summary['n']:,} responses on {summary['images']:,} images"
    common.console().print(figure_table(summary["benchmark"], read_metrics(results), caption).terminal())
    if summary["scorer"].get("unparsed"):
        typer.echo(f"{summary['scorer']['unparsed']} replies could not be read", err=True)
    typer.echo(f"page: {target / REPORT}", err=True)


def _tell_apart(one: str, two: str, first: Path, second: Path) -> tuple[str, str]:
    return (one, two) if one != two else (first.name or str(first), second.name or str(second))
