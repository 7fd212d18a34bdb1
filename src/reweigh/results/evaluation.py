"""The page of one evaluation: large numbers, intervals, all figures, examples with coloured mentions, the record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reweigh.benchmarks.base import Id, Item, find_benchmark
from reweigh.files.outputs import write_output
from reweigh.results.examples import FindImage, example_section
from reweigh.results.html import tiles
from reweigh.results.metrics import full_table, metric_tile
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.runs.results import ScoredRun, read_metrics, run_title

FOLD = 12


def write_report(run: ScoredRun, *, data: Path | None = None, images: Path | None = None) -> Path:
    """Write the page of a scored run into its folder; ``data`` and ``images`` are where its images may be."""
    find = run.image_finder(data=data, images=images)
    prompts = {row["id"]: row["prompt"] for row in run.manifest}
    path = run.folder / run.files.report
    return write_output(path, evaluation_page(run.results, run.items, run.texts, find=find, prompts=prompts))


def evaluation_page(
    results: Mapping[str, Any],
    items: Sequence[Item],
    texts: Mapping[Id, str],
    *,
    find: FindImage = lambda _: None,
    prompts: Mapping[Id, str] | None = None,
) -> str:
    """Build the page of a scored run; ``find`` gives the image file of an item, if there is one."""
    summary, config = results["summary"], results["config"]
    benchmark = find_benchmark(summary["benchmark"])
    metrics = read_metrics(results)
    headlines = benchmark.headlines(list(metrics))
    made = Page(
        f"{benchmark.heading()}: {run_title(config)}",
        lead=_lead(summary),
        footer="Written by reweigh eval score.",
    )
    made.add(tiles(metric_tile(info, metrics[info.name]) for info in headlines))
    drawn = {
        info.title: metrics[info.name]
        for info in headlines
        if info.unit == "%" and metrics[info.name].bounded
    }
    if drawn:
        made.section("Intervals").intervals(drawn, "Percent, with 95% image-bootstrap intervals.")
    made.add(example_section(items, texts, find, prompts or {}))
    made.section("All figures").table(full_table(benchmark.name, metrics), fold=FOLD)
    if summary["official"]:
        rows: list[list[Cell]] = [
            [name, "undefined" if value is None else f"{value:g}"]
            for name, value in summary["official"].items()
        ]
        made.section("As the official program prints them").table(
            Table([Column("figure"), Column("printed")], rows), fold=FOLD
        )
    made.section("Record").record({"scorer": summary["scorer"], **config}, "everything the figures depend on")
    return made.html()


def _lead(summary: Mapping[str, Any]) -> str:
    lead = f"{summary['n']:,} responses on {summary['images']:,} images; 95% intervals by image bootstrap."
    judge = summary["scorer"].get("judge") or {}
    if "model" in judge:
        how = f" over closed questions ({judge['kind']})" if "kind" in judge else ""
        lead += f" Rated by {judge['model']}{how}."
    if unparsed := summary["scorer"].get("unparsed"):
        lead += f" {unparsed:,} replies could not be read."
    return lead
