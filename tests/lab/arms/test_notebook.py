"""The studies as a notebook calls them: library functions on a loaded model, without the command line."""

from __future__ import annotations

import pytest

from reweigh.files.artifacts import read_json, read_jsonl
from reweigh.lab.arms.ablate.arms import make_variants
from reweigh.lab.arms.ablate.run import Plan, ablate
from reweigh.lab.arms.compare.methods import make_method
from reweigh.lab.arms.compare.run import compare
from reweigh.lab.arms.tune.run import Grid, tune
from reweigh.lab.arms.tune.search import FIGURES, gain
from reweigh.lab.runs.results import read_scored
from reweigh.lab.runs.task import Runs, Task
from reweigh.lab.tasks.world import World
from reweigh.tables.table import ReferenceTable
from reweigh.world import operating_point, table_path
from tools.training.speaking import load

SCENES = 4


@pytest.fixture(scope="module")
def embedded():
    return load()


@pytest.fixture(scope="module")
def table():
    return ReferenceTable.from_pretrained(table_path(), layer=operating_point()["layer"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    world = World(folder, split="tuning", scenes=SCENES)
    about = {"name": "world", "options": {"split": "tuning", "scenes": SCENES}, "limit": None}
    return Runs(Task(world, world.records(), folder, about, {}), {"id": "embedded"}, batch_size=SCENES)


def responses(folder):
    return [row["response"] for row in read_jsonl(folder / "rows.jsonl")]


def test_tune_finds_a_point_and_keeps_every_run(embedded, table, runs, tmp_path):
    tuned = tune(*embedded, Grid({table.layer: table}, [2.0]), runs, tmp_path)
    [point] = tuned.points
    assert point.where == (table.layer, 2.0)
    assert point.gain == gain(point.metrics, tuned.base)
    assert sorted(folder.name for folder in (tmp_path / "world").iterdir()) == [
        "base",
        f"layer-{table.layer}-beta-2",
    ]
    scored = read_scored(tmp_path / "world" / "base").summary.metrics
    assert {name: scored[name] for name in FIGURES} == {name: tuned.base[name] for name in FIGURES}


def test_compare_puts_methods_side_by_side(embedded, table, runs, tmp_path):
    options = {"reweigh": {"table": table, "beta": operating_point()["beta"]}}
    methods = [make_method(name, *embedded, options.get(name, {})) for name in ("base", "dola", "reweigh")]
    made = compare("embedded", methods, [runs], tmp_path)
    assert [row["method"] for row in made.to_json()["rows"]] == ["Base (greedy)", "DoLa", "ReWEIGH"]
    record = read_json(tmp_path / "world" / "reweigh" / "record.json")["record"]
    assert record["decoding"]["table_sha256"] == table.fingerprint
    # The same texts as the session gives by itself, in the same batch.
    [session] = [method.session for method in methods if method.name == "reweigh"]
    pictures = [runs.task.images / one.image for one in runs.task.records]
    texts = session.describe(pictures, runs.task.records[0].prompt, max_new_tokens=128)
    assert responses(tmp_path / "world" / "reweigh") == texts
    assert responses(tmp_path / "world" / "base") != texts


def test_ablate_scores_every_arm_against_the_full_method(embedded, table, runs, tmp_path):
    arms, left_out = make_variants(
        ["full", "cyclic", "unbounded"],
        table,
        records=SCENES,
        vocab_size=embedded[0].config.text_config.vocab_size,
        observations=None,
        shuffles=1,
        seed=42,
    )
    assert left_out == {}
    found = ablate(*embedded, Plan(table, 2.0, arms, left_out), runs, tmp_path)
    assert found.distinct("arm") == ["base", "full", "cyclic", "unbounded"]
    assert found.get(benchmark="world", arm="base", figure="edits", against=None) is None
    edits = {name: found.one(arm="full", figure=name).value for name in ("candidates", "edits", "escapes")}
    assert edits["escapes"] == 0 < edits["edits"] < edits["candidates"]
    changed = found.against("full")
    assert changed.distinct("arm") == ["base", "cyclic", "unbounded"]
    assert {"chair_s", "chair_i", "chair_i_distinct", "recall", "f1"} <= set(changed.distinct("figure"))
    assert responses(tmp_path / "world" / "base") != responses(tmp_path / "world" / "full")
