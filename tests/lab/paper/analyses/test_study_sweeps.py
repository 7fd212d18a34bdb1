"""Sweeps: nested prefixes give the shipped table again, mixes of scenes are parts of its images, grids are searches."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from reweigh import world
from reweigh.calibration.result import Calibration
from reweigh.errors import MismatchError
from reweigh.files.seals import write_sealed
from reweigh.lab.arms.tune.report import POINT
from reweigh.lab.estimate import Estimate
from reweigh.lab.paper.analyses.corpora import scene_mixes
from reweigh.lab.paper.analyses.grid import Grid
from reweigh.lab.paper.analyses.scaling import Scaling
from reweigh.lab.paper.analyses.sizes import require_same
from reweigh.lab.paper.analyses.specificity import verdict
from reweigh.lab.paper.analyses.sweep import Setting, Sweep, change_of, settings_of
from reweigh.lab.paper.material import Material, register
from reweigh.lab.paper.study import compute
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.base import Item, Summary
from reweigh.lab.tasks.chair.metrics import count_caption, summarize_metrics


@pytest.fixture(scope="module")
def shipped():  # type: ignore[no-untyped-def]
    found = Calibration.load(world.table_path())
    layer = world.operating_point()["layer"]
    return found.observations.at([layer]), found.tables[layer]


def content(table, folder: Path) -> bytes:  # type: ignore[no-untyped-def]
    return replace(table, point=None).save_pretrained(folder).read_bytes()  # type: ignore[no-any-return]


def test_the_prefix_of_all_images_is_the_shipped_table_byte_for_byte(shipped, tmp_path: Path) -> None:
    observations, table = shipped
    whole = register(observations.only(observations.images), table)
    require_same(whole, table)
    assert content(whole, tmp_path / "a") == content(table, tmp_path / "b")


def test_smaller_prefixes_are_nested_and_give_other_tables(shipped) -> None:
    observations, table = shipped
    sizes = [10, 50, 200]
    tables = [register(observations.only(observations.images[:size]), table) for size in sizes]
    assert [one.about["images"] for one in tables] == sizes
    assert len(tables[0]) < len(tables[1]) < len(tables[2]) < len(table)
    for one in tables:
        with pytest.raises(MismatchError, match="images"):
            require_same(one, table)
    # a twin: the medians of the first ten images, counted one by one
    part = [i for i, image in enumerate(observations.image) if image < 10]
    pooled = np.repeat(observations.values[0, part].astype(float), observations.count[part])
    assert tables[0].b0 == float(np.median(pooled))


def test_scene_mixes_split_the_own_images(shipped) -> None:
    observations, table = shipped
    halves = list(scene_mixes(observations).values())
    assert len(halves) == 2
    assert sorted([*halves[0].images, *halves[1].images]) == list(observations.images)
    assert not set(halves[0].images) & set(halves[1].images)
    assert register(observations, table).fingerprint == table.fingerprint
    assert scene_mixes(observations.only([])) == {}


def test_the_grid_of_the_shipped_search(shipped) -> None:
    _, table = shipped
    point = world.operating_point()
    frame = compute(
        Grid, SimpleNamespace(evaluation=range(40), beside=lambda name: Path("none", name), table=table)
    ).frame
    assert len(frame.pick(quantity="chair_s")) == 1 + len(point["grid"])
    [chosen] = frame.pick(note="chosen", quantity="chair_s")
    assert (chosen["layer"], chosen["beta"]) == (point["layer"], point["beta"])
    other = SimpleNamespace(
        beside=lambda name: Path("none", name), table=SimpleNamespace(layer=0, fingerprint="another")
    )
    assert "reweigh tune" in str(compute(Grid, other).unmet)


def test_a_search_with_another_table_is_not_the_grid_of_this_one(shipped, tmp_path: Path) -> None:
    _, table = shipped
    point = world.operating_point()
    material = SimpleNamespace(beside=lambda name: tmp_path / name, table=table)
    write_sealed(tmp_path / "tuning" / POINT, point)
    assert compute(Grid, material).unmet is None
    others = {**point["chosen_on"], "table_sha256": {str(table.layer): "another"}}
    write_sealed(tmp_path / "tuning" / POINT, {**point, "chosen_on": others})
    assert "table in use" in str(compute(Grid, material).unmet)


def scored(hallucinated: list[int]) -> Scored:
    """Answers that name a cat, and a dog that is not there, so many times."""
    items = [
        Item(id=i, image=i, counts=count_caption(["cat", *["dog"] * count], {"cat"}, words=3))
        for i, count in enumerate(hallucinated)
    ]
    return Scored(items, Summary.of(items, benchmark="world", metrics=summarize_metrics(items), scorer={}))


class Made(Sweep):
    """Two settings, one of which could not be run."""

    def settings(self, material):  # type: ignore[no-untyped-def]
        yield Setting("small", scored([1, 0, 0, 0]), {"registered": 7})
        yield Setting("large", None, note="needs a larger panel")


def test_a_setting_has_figures_and_paired_differences() -> None:
    drawn = SimpleNamespace(draws={"resamples": 50, "seed": 1})
    material = SimpleNamespace(
        base=lambda: scored([1, 1, 0, 0]), difference=partial(Material.difference, drawn)
    )
    frame = Made().compute(material)
    assert frame.one(setting="base", quantity="chair_s").value == 50.0
    assert frame.one(setting="small", quantity="registered").value == 7
    change = change_of(frame, "small")
    assert change.value == -25.0
    assert change.low <= -25.0 <= change.high <= 0.0
    assert frame.one(setting="large", quantity="chair_s").value is None
    assert settings_of(frame) == ["small"]
    assert frame.keys == tuple(dict(Sweep.keys))
    assert len(frame.against("base")) == 4


@pytest.mark.parametrize(
    ("low", "share", "said"),
    [
        (1.0, 0.3, "As in the paper, this is worse."),
        (1.0, 0.7, "at least half"),
        (1.0, 0.5, "at least half"),
        (-1.0, 0.3, "not confirmed"),
        (None, None, "not confirmed"),
    ],
)
def test_a_substitute_is_held_against_both_parts(low, share, said):
    assert said in verdict(Estimate(1.0, low, 2.0), share)


@pytest.mark.parametrize("benchmark", ["world", "chair"])
def test_checkpoints_are_compared_on_one_benchmark(benchmark: str, monkeypatch, tmp_path: Path) -> None:
    for name in ("base", "rank"):
        (tmp_path / "checkpoints" / "other" / "world" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / "other" / "world" / name / "results.json").touch()
    further = replace(scored([2, 0, 0, 0]), results={"config": {"model": {"id": "other"}}})
    monkeypatch.setattr("reweigh.lab.paper.analyses.scaling.read_scored", lambda folder: further)
    material = SimpleNamespace(
        runs=SimpleNamespace(model={"id": "this"}, task=SimpleNamespace(name=benchmark)),
        base=lambda: scored([1, 1, 0, 0]),
        rank=lambda: scored([1, 0, 0, 0]),
        difference=partial(Material.difference, SimpleNamespace(draws={"resamples": 50, "seed": 1})),
        beside=lambda name: tmp_path / name,
    )
    found = Scaling().compute(material).distinct("model")
    assert found == (["this", "other"] if benchmark == "world" else ["this"])
