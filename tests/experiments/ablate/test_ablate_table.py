"""The numbers of an ablation's rows."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from reweigh.benchmarks.base import Item, Summary
from reweigh.benchmarks.chair.metrics import count_caption, summarise_metrics
from reweigh.estimate import Estimate
from reweigh.experiments.ablate.report import (
    COLUMNS,
    DIFFERENCES,
    EDITS,
    FIGURES,
    AblationReport,
    ArmResult,
    spread,
)
from reweigh.experiments.ablate.run import Plan
from reweigh.runs.task import Scored

REFERENCE = {"dog", "cat"}


def run(*captions):
    """Captions as lists of named objects, each of an image with a dog and a cat."""
    items = [
        Item(
            id=number,
            image=number,
            counts=count_caption(objects, REFERENCE, words=len(objects)),
            details={
                "mentions": [{"object": name, "hallucinated": name not in REFERENCE} for name in objects]
            },
        )
        for number, objects in enumerate(captions)
    ]
    return Scored(
        items,
        Summary(benchmark="world", metrics=summarise_metrics(items), n=len(items), images=len(items)),
    )


FULL = run(["dog", "cat"], ["dog", "bus"])
COUNTS = {"candidates": 40, "edits": 10, "escapes": 3}


def test_repetition_is_of_one_object_in_one_description():
    described = run(["dog", "cat", "dog"], ["dog", "bus"])
    assert ArmResult.of("base", "base", described, described, None).repetition == 2
    nothing = run([], [])
    assert ArmResult.of("base", "base", nothing, nothing, None).repetition == 0


def test_a_row_holds_the_difference_to_the_full_method():
    row = ArmResult.of("blind", "blind", run(["dog", "bus"], ["dog", "bus"]), FULL, COUNTS)
    values = row.values()
    assert values["chair_i"].value == 50
    assert values["chair_i_difference"].value == 25
    assert values["recall"].value == 50
    assert (values["fire"], values["escapes"], values["repetition"], values["length"]) == (25.0, 3, 1, 2.0)
    full = ArmResult.of("full", "full", FULL, FULL, {**COUNTS, "candidates": 0})
    assert full.values()["chair_i_difference"] is None
    assert full.fire is None


def test_permutations_are_followed_by_their_mean_and_range():
    rows = [
        ArmResult.of("base", "base", FULL, FULL, None),
        ArmResult.of("full", "full", FULL, FULL, COUNTS),
        ArmResult.of("shuffled-0", "shuffled", run(["bus"], ["bus"]), FULL, COUNTS),
        ArmResult.of("shuffled-1", "shuffled", run(["dog"], ["dog", "cat"]), FULL, {**COUNTS, "escapes": 0}),
        ArmResult.of("blind", "blind", FULL, FULL, COUNTS),
    ]
    found = spread(rows[2:4])
    assert [found[what]["chair_i"] for what in ("mean", "lowest", "highest")] == [50, 0, 100]
    assert found["mean"]["escapes"] == 1.5
    assert found["mean"]["recall"] == pytest.approx(37.5)
    table = SimpleNamespace(layer=2, fingerprint="0" * 64)
    plan = Plan(table=table, beta=1.0, variants=[], left_out={"count-5": "none kept"})
    about = {"model": "made", "records": 2, "benchmark": {"name": "world"}}
    report = AblationReport(rows, plan, about)
    assert [row[0] for row in report.table(tuple(COLUMNS)).rows] == [
        "base",
        "full",
        "shuffled-0",
        "shuffled-1",
        "shuffled, mean",
        "shuffled, lowest",
        "shuffled, highest",
        "blind",
    ]
    made = report.to_json()
    assert [row["arm"] for row in made["arms"]] == [row.name for row in rows]
    assert made["arms"][0]["edits"] is None
    assert made["shuffled"]["highest"]["chair_i"] == 100
    figures = report.table(FIGURES).rows
    assert isinstance(figures[2][2], Estimate), "a figure of a run has its interval"
    assert figures[4][2] == 50.0, "a mean over permutations has none"
    assert "**" not in report.page().markdown(), "no arm wins, least of all the luckiest permutation"
    assert "| count-5 | left out: none kept |" in report.page().markdown()
    assert "<svg" in report.page().html()


def test_a_range_over_an_undefined_figure_is_undefined():
    rows = [
        ArmResult.of("shuffled-0", "shuffled", run([], []), FULL, COUNTS),
        ArmResult.of("shuffled-1", "shuffled", FULL, FULL, COUNTS),
    ]
    assert spread(rows)["mean"]["chair_i"] is None
    assert spread(rows)["mean"]["recall"] is not None


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_table_is_wider_than_the_terminal(width):
    many = [run(["dog", "bus", "car"], *[["dog", "cat"]] * 9), run(*[["bus", "car", "cup"]] * 10)]
    full = run(*[["dog", "cat"]] * 10)
    kinds = ("base", "no-abstention")
    rows = [ArmResult.of(kind, kind, one, full, COUNTS) for kind, one in zip(kinds, many, strict=True)]
    report = AblationReport(rows, Plan(table=None, beta=1.0, variants=[], left_out={}), {})
    tables = [report.table(names) for names in (FIGURES, DIFFERENCES, EDITS)]
    assert {column.name for table in tables for column in table.columns} == {
        "arm",
        *(column.name for column in COLUMNS.values()),
    }
    console = Console(width=1000, file=io.StringIO())
    for table in tables:
        assert console.measure(table.terminal(width)).maximum <= width
