"""The command on the embedded model: a small grid, stopped and resumed, and what it leaves."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

import reweigh
from reweigh.cli.app import app
from reweigh.errors import InputError
from reweigh.files.seals import read_sealed
from reweigh.lab.arms.tune.run import Grid
from reweigh.lab.arms.tune.search import FIGURES, gain
from reweigh.lab.estimate import Estimate
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.task import open_task
from reweigh.tables.store import recorded_point, table_layers
from reweigh.world import table_path

run = CliRunner().invoke


LAYERS = [str(layer) for layer in table_layers(table_path())[-2:]]


def command(out, *more):
    grid = ["--layers", ",".join(LAYERS), "--betas", "0.5,3"]
    return ["tune", "world", "--out", str(out), "--limit", "4", *grid, *more]


@pytest.mark.slow
def test_a_search_leaves_runs_a_point_and_a_page_and_resumes_to_the_same_bytes(tmp_path):
    done = run(app, command(tmp_path, "--json"))
    assert done.exit_code == 0, done.output + str(done.exception)
    point = json.loads(done.stdout)
    assert point == read_sealed(tmp_path / "operating_point.json")
    assert set(point) == {"layer", "beta", "base", "edge", "grid", "chosen_on"}
    assert point["chosen_on"]["options"] == {"split": "tuning", "scenes": 300}
    assert set(point["chosen_on"]["table_sha256"]) == set(LAYERS)
    base = {name: Estimate(point["base"][name]) for name in FIGURES}
    for row in point["grid"]:
        assert row["gain"] == gain({name: Estimate(row[name]) for name in FIGURES}, base)
        folder = tmp_path / "world" / f"layer-{row['layer']}-beta-{row['beta']:g}"
        metrics = read_scored(folder).summary.metrics
        assert {name: metrics[name].value for name in FIGURES} == {name: row[name] for name in FIGURES}
        assert row["difference"]["gain"]["value"] == pytest.approx(100 * row["gain"])
        for name in FIGURES:
            assert row["intervals"][name] == [metrics[name].low, metrics[name].high]
            assert row["difference"][name]["value"] == pytest.approx(row[name] - point["base"][name])
    assert "<svg" in (tmp_path / "report.html").read_text()
    assert "Difference to the base" in (tmp_path / "tuning.md").read_text()
    assert (tmp_path / "tuning.tex").read_text().count("begin{tabular}") == 2
    two = [str(tmp_path / "world" / name) for name in ("base", f"layer-{LAYERS[-1]}-beta-3")]
    assert json.loads(run(app, ["eval", "diff", *two, "--json"]).stdout)["n"] == 4

    # A stopped search answers the rest, to the same bytes.
    whole = {path: path.read_bytes() for path in tmp_path.glob("world/*/rows.jsonl")}
    for path in list(whole)[::2]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        (path.parent / "manifest.json").unlink()
    again = run(app, command(tmp_path))
    assert again.exit_code == 0, again.output + str(again.exception)
    assert {path: path.read_bytes() for path in whole} == whole
    assert read_sealed(tmp_path / "operating_point.json") == point
    frame = reweigh.read(tmp_path)
    assert frame.about["chosen"] == (
        None if point["layer"] is None else {name: point[name] for name in ("layer", "beta")}
    )
    assert frame.one(layer=int(LAYERS[-1]), beta=3.0, figure="f1", against=None).bounded
    found = ("reweigh describe world IMAGE --layer", "not recommended")
    said = found if point["layer"] is not None else ("use the base model",)
    assert any(words in again.stdout for words in said)
    recommended = "reweigh describe world IMAGE --layer" in again.stdout
    assert ("next: reweigh compare" in again.stderr) == recommended, "no point to compare without one to use"


@pytest.mark.slow
def test_the_recommendation_names_a_table_that_was_named(tmp_path):
    out, tables = tmp_path / "out", shutil.copytree(table_path(), tmp_path / "tables")
    before = recorded_point(tables)
    done = run(app, command(out, "--table", str(tables), "--bound", "100", "--no-record"))
    assert done.exit_code == 0, done.output + str(done.exception)
    point = read_sealed(out / "operating_point.json")
    assert all(row["eligible"] for row in point["grid"])
    told = done.stdout.replace("\n", " ")
    assert point["layer"] is None or "not recommended" in told or f"--table {tables}" in told
    assert recorded_point(tables) == before
    kept = run(app, command(out, "--table", str(tables), "--bound", "100"))
    assert recorded_point(tables) == before, "a smaller search replaces nothing"
    assert "keeps its operating point" in kept.stderr
    run(app, command(out, "--table", str(tables), "--bound", "100", "--overwrite"))
    if point["layer"] is not None:
        there = recorded_point(tables)
        assert (there.layer, there.beta) == (point["layer"], point["beta"])
        assert there.records == point["chosen_on"]["records"]


def test_a_benchmark_of_other_figures_is_refused(tmp_path):
    from reweigh.lab.tasks.pope import POPE

    # What is asked of POPE does not matter here: it has no CHAIR figures.
    folder = tmp_path / "pope"
    folder.mkdir()
    for split in ("random", "popular", "adversarial"):
        row = {"question_id": 1, "image": "a.jpg", "text": "Is there a dog?", "label": "no"}
        (folder / f"coco_pope_{split}.json").write_text(json.dumps(row))
    assert POPE(folder).records()
    done = run(app, ["tune", "world", "-b", "pope", "--data", str(folder), "--out", str(tmp_path / "o")])
    assert isinstance(done.exception, InputError)
    assert "chair_s" in str(done.exception)


def test_a_point_says_how_long_its_answers_were(tmp_path):
    grid = Grid.open(str(table_path()), None, "1", 0.5)
    task = open_task("world", options={"scenes": 2}, drawings=tmp_path)
    assert "max_new_tokens" not in grid.chosen_on(task, limit=None, seed=42)
    short = task.with_length(7)
    assert grid.chosen_on(short, limit=None, seed=42)["max_new_tokens"] == 7
    assert {record.max_new_tokens for record in short.records} == {7}
