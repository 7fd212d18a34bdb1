"""``reweigh eval``: answer a benchmark, score answers, compare two runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from reweigh.cli import common
from reweigh.cli.options import (
    BENCHMARK,
    DATA,
    DECODER,
    DECODER_OPTION,
    OPTION,
    RAY,
    ExperimentOptions,
    JudgeOptions,
    decoder_options,
    grouped,
    open_cluster,
    require_apart,
    split_images,
)
from reweigh.files.outputs import claim

if TYPE_CHECKING:
    from reweigh.lab.runs.results import Scored
    from reweigh.lab.runs.task import Task
    from reweigh.lab.study import Study

app = typer.Typer(
    no_args_is_help=True, add_completion=False, help="Answer a benchmark, score answers, compare two runs."
)


@app.command()
@grouped
def run(
    *,
    benchmark: str = BENCHMARK,
    out: Path = typer.Option(..., "--out", "-o", help="Run folder; a stopped run resumes there."),
    decoder: str = DECODER,
    decoder_option: list[str] = DECODER_OPTION,
    point: common.Point,
    setup: ExperimentOptions,
    shard: str = typer.Option(
        "1/1", help="Answer only part i of n, as i/n.", rich_help_panel=common.ADVANCED
    ),
    ray: str | None = RAY,
) -> None:
    """Answer every record of a benchmark, score the answers and print the result.

    A benchmark with a judge, or a part of one, is only answered; `reweigh eval score` scores it.
    """
    from reweigh.lab.study import Study, decoder_arm

    task = setup.task(benchmark, drawings=out / "pictures")
    given = decoder_options(decoder, decoder_option, setup.model, point, force=setup.force)
    require_apart(given, [task])
    arm = decoder_arm(decoder, decoder, given)
    Study([setup.runs(task)], [arm], out, flat=True).claim()
    if ray is not None:
        study = _on_ray(setup, task, decoder, given, ray, out, shard)
    else:
        loaded = setup.load(setup.model)
        runs = setup.runs(task, loaded)
        study = Study([runs], [arm], out, reference=None, flat=True, shard=shard)
        with study.progress(1):
            study.answer(runs, [arm], loaded)
    _end_run(task, out, study.answered, whole=shard == "1/1")


def _end_run(task: Task, out: Path, new: int, *, whole: bool) -> None:
    """Score a finished run and print it; say what to do with a run that cannot be scored yet."""
    from reweigh.lab.runs.score import score_paths
    from reweigh.lab.views.evaluation import write_report

    count = len(task.records)
    common.note(
        f"{new} new answers, {count} of {count} in total" if whole else f"{new} new answers in this part"
    )
    answered = {"out": str(out), "answered_now": new, "records": count}
    if task.bench.judged or not whole:
        common.show(answered, lambda: typer.echo(out))
        common.finish(
            then=f"reweigh eval score {common.quoted(out)}"
            + ("" if whole else " and the other parts -o RESULT")
        )
        return
    scored = score_paths([out])
    page = write_report(scored, images=task.images)
    _print_caveats(scored, task.bench.remarks)
    common.show({**answered, "results": scored.results}, lambda: _print_score(scored))
    common.finish(out, page, then=f"reweigh eval diff OTHER_RUN {common.quoted(out)}")


@app.command()
@grouped
def score(
    sources: list[Path] = typer.Argument(help="A run folder, all its parts, or response files of any tool."),
    *,
    benchmark: str = typer.Option(
        None, "--benchmark", "-b", help="chair, amber-generative, mmhal ...; a run folder knows its own."
    ),
    data: Path | None = DATA,
    option: list[str] = OPTION,
    out: Path = typer.Option(None, "--out", "-o", help="Folder for the results; by default the run folder."),
    partial: bool = typer.Option(
        False, "--allow-missing", help="Score an unfinished run, or a file with missing answers."
    ),
    keys: str = typer.Option(None, metavar="ID,TEXT", help="Keys of id and text in a response file."),
    thinking: bool = typer.Option(
        False, help="Score what the model thought before each answer, instead of the answers; needs --out."
    ),
    judging: JudgeOptions,
) -> None:
    """Score responses without a model; write items.jsonl, results.json and report.html."""
    from reweigh.lab.runs.score import score_paths
    from reweigh.lab.views.evaluation import write_report

    id_key, _, text_key = (keys or "").partition(",")
    options, images = split_images(benchmark, option)
    run = score_paths(
        sources,
        benchmark=benchmark,
        data=data,
        options=options,
        out=out,
        partial=partial,
        id_key=id_key or None,
        text_key=text_key or None,
        judge=judging.settings(),
        thinking=thinking,
    )
    page = write_report(run, data=data, images=images)
    _print_caveats(run)
    common.show(run.results, lambda: _print_score(run))
    common.finish(page, then=f"reweigh eval diff OTHER_RUN {common.quoted(run.folder)}")


@app.command()
def diff(
    first: Path = typer.Argument(help="Scored run folder, e.g. of the base model."),
    second: Path = typer.Argument(help="Scored run folder to compare with it."),
    out: Path = typer.Option(None, "--out", "-o", help="File for a page with both runs side by side."),
) -> None:
    """Compare two scored runs: removed, introduced and kept hallucinations, paired intervals."""
    from reweigh.lab.runs.diff import diff_runs
    from reweigh.lab.views.evaluation import comparison_page, difference_table, mention_table

    claim([] if out is None else [out])
    pair = diff_runs(first, second)
    shown = [table for table in (difference_table(pair), mention_table(pair)) if table is not None]
    common.show(pair.to_json(), lambda: common.console().print(*shown))
    if out is not None:
        comparison_page(pair, pair.first.image_finder()).write(out)
        common.finish(out, then=f"open {common.quoted(out)}")


def _on_ray(
    setup: ExperimentOptions,
    task: Task,
    decoder: str,
    given: dict[str, Any],
    ray: str,
    out: Path,
    shard: str,
) -> Study:
    """Answer with the actors of a cluster."""
    from reweigh.lab.arms.compare.on_ray import answer_on

    arguments = {**setup.locate(setup.model), "methods": {decoder: given}, "template": setup.template}
    return answer_on(open_cluster(ray), arguments, setup.runs(task), out, shard=shard)


def _print_score(run: Scored) -> None:
    from reweigh.lab.views.evaluation import metric_table

    judge = run.judging.get("judge", {}).get("model")
    rated = f", rated by {judge}" if judge else ""
    caption = f"{run.benchmark.title}, {run.title}: {run.size}{rated}"
    metrics = run.summary.metrics
    common.console().print(metric_table(run.benchmark.headlines(list(metrics)), metrics, caption))


def _print_caveats(run: Scored, remarks: Callable[[list[str]], list[str]] = lambda _: []) -> None:
    """Warn about missing or unreadable answers, and about a scorer that differs from the official one."""
    from reweigh.lab.runs.texts import warnings_about

    samples = run.results["n-samples"][run.summary.benchmark]
    if samples["effective"] < samples["original"]:
        typer.echo(f"only {samples['effective']:,} of {samples['original']:,} records were scored", err=True)
    scorer = run.summary.scorer
    texts = list(run.texts.values())
    for warned in [*warnings_about({"": texts}), *remarks(texts)]:
        typer.echo(warned, err=True)
    if unparsed := scorer.get("unparsed"):
        typer.echo(f"{unparsed} replies could not be read", err=True)
    if note := (scorer.get("similarity") or {}).get("note"):
        typer.echo(f"similarity differs from the official scorer's: {note}", err=True)
