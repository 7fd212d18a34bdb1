"""The numbers of an ablation's rows."""

from __future__ import annotations

import io
from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.console import Console

from reweigh.lab.arms.ablate.report import COUNTED, EDITS, FIGURES, Ablation, edit_rows
from reweigh.lab.arms.ablate.run import Plan
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.runs.results import Scored
from reweigh.lab.study import figure_rows
from reweigh.lab.tasks.base import Item, Summary
from reweigh.lab.tasks.chair.metrics import count_caption, figures, summarize_metrics

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
        Summary(benchmark="world", metrics=summarize_metrics(items), n=len(items), images=len(items)),
    )


FULL = run(["dog", "cat"], ["dog", "bus"])
COUNTS = dict(zip(COUNTED, (40, 10, 3, 8, 6, 2), strict=True))


def ablation(**arms):
    """A report of arms after the base and the full method: each a kind, a run and its counts."""
    arms = {"base": ("base", FULL, None), "full": ("full", FULL, COUNTS), **arms}
    task = SimpleNamespace(name="world", bench=SimpleNamespace(figures=figures))
    rows = [
        *figure_rows(SimpleNamespace(task=task), {name: one for name, (_, one, _) in arms.items()}, "full")
    ]
    for name, (_, one, counts) in arms.items():
        rows += edit_rows({"benchmark": "world", "arm": name}, counts, one.items)
    variants = [
        SimpleNamespace(name=name, kind=kind, table=[])
        for name, (kind, _, _) in arms.items()
        if name != "base"
    ]
    table = SimpleNamespace(layer=2, fingerprint="0" * 64)
    plan = Plan(table=table, beta=1.0, variants=variants, left_out={"count-5": "none kept"})
    return Ablation(Frame(rows), plan, {"model": "made", "records": 2, "benchmark": {"name": "world"}})


def test_repetition_is_of_one_object_in_one_description():
    for captions, most in (((["dog", "cat", "dog"], ["dog", "bus"]), 2), (([], []), 0)):
        rows = edit_rows({"arm": "base"}, None, run(*captions).items)
        assert Frame(rows).one(figure="repetition").value == most


def test_a_row_holds_the_difference_to_the_full_method():
    made = ablation(
        blind=("blind", run(["dog", "bus"], ["dog", "bus"]), COUNTS),
        idle=("global", FULL, {**COUNTS, "candidates": 0}),
    ).to_json()
    _, full, blind, idle = made["arms"]
    assert (blind["chair_i"]["value"], blind["recall"]["value"], blind["length"]["value"]) == (50, 50, 2.0)
    assert blind["difference"]["chair_i"]["value"] == 25
    assert set(blind["difference"]) == set(FIGURES)
    assert (blind["fire_candidates"], blind["fire_steps"], blind["repetition"]) == (25.0, 75.0, 1)
    assert (blind["edits"]["escapes"], blind["edits"]["escaped_steps"]) == (3, 2)
    assert full["difference"] == {}
    assert idle["fire_candidates"] is None


def test_permutations_are_followed_by_their_mean_and_range():
    report = ablation(
        **{
            "shuffled-0": ("shuffled", run(["bus"], ["bus"]), COUNTS),
            "shuffled-1": ("shuffled", run(["dog"], ["dog", "cat"]), {**COUNTS, "escapes": 0}),
            "blind": ("blind", FULL, COUNTS),
        }
    )
    made = report.to_json()
    assert [made["shuffled"][what]["chair_i"] for what in ("mean", "lowest", "highest")] == [50, 0, 100]
    assert made["shuffled"]["mean"]["chair_i_difference"] == 25
    assert made["shuffled"]["mean"]["escapes"] == 1.5
    assert made["shuffled"]["mean"]["recall"] == pytest.approx(37.5)
    assert [row["arm"] for row in made["arms"]] == ["base", "full", "shuffled-0", "shuffled-1", "blind"]
    assert made["arms"][0]["edits"] is None
    for table in (report.contrast.values, report.edits):
        assert [row[0] for row in table.rows] == [
            "base",
            "full",
            "shuffled-0",
            "shuffled-1",
            "shuffled, mean",
            "shuffled, lowest",
            "shuffled, highest",
            "blind",
        ]
    shown = report.contrast.values.rows
    assert shown[2][2].bounded, "a figure of a run has its interval"
    assert shown[4][2] == Estimate(50.0), "a mean over permutations has none"
    text = report.page().markdown()
    assert "**" not in text, "no arm wins, least of all the luckiest permutation"
    assert "| count-5 | left out: none kept |" in text
    assert "<svg" in report.page().html()


def test_a_range_over_an_undefined_figure_is_undefined():
    made = ablation(
        **{"shuffled-0": ("shuffled", run([], []), COUNTS), "shuffled-1": ("shuffled", FULL, COUNTS)}
    ).to_json()
    assert made["shuffled"]["mean"]["chair_i"] is None
    assert made["shuffled"]["mean"]["recall"] is not None


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_table_is_wider_than_the_terminal(width):
    many = run(["dog", "bus", "car"], ["bus", "car", "cup"])
    report = ablation(**{"no-abstention": ("no-abstention", many, COUNTS)})
    tables = [report.contrast.values, report.contrast.differences, report.edits]
    assert [len(table.columns) for table in tables] == [1 + len(FIGURES)] * 2 + [1 + len(EDITS)]
    console = Console(width=1000, file=io.StringIO())
    for table in tables:
        assert console.measure(replace(table, caption="").terminal(width)).maximum <= width
