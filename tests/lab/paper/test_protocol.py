"""The paper's settings as data: what the file says agrees with the published numbers and the operating points."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from reweigh.errors import InputError
from reweigh.families.points import PUBLISHED
from reweigh.lab.arms.ablate.arms import WORDS
from reweigh.lab.paper.protocol import Images, protocol
from reweigh.lab.paper.published import REFERENCE, published
from reweigh.lab.tasks.base import BENCHMARKS
from reweigh.rivals import DECODERS


def test_the_models_are_those_of_the_tables_at_their_published_points() -> None:
    models = protocol().models
    assert set(models) == set(published()["tab:model-scaling"].values)
    points = {one.model: (one.layer, one.beta, one.blocks) for one in PUBLISHED}
    assert {name: (one.layer, one.beta, one.blocks) for name, one in models.items()} == points
    for model in models.values():
        assert model.layer in model.layers
        assert max(model.layers) < model.blocks


def test_a_larger_model_reads_at_the_distance_of_the_one_it_reuses() -> None:
    models = protocol().models
    reusing = {name: one for name, one in models.items() if one.reuses}
    assert set(reusing) == {"LLaVA-1.5-13B", "InstructBLIP-13B", "Qwen2.5-VL-32B"}
    for one in reusing.values():
        small = models[str(one.reuses)]
        assert (one.blocks - one.layer, one.beta) == (small.blocks - small.layer, small.beta)


def test_the_searches_are_the_papers() -> None:
    settings = protocol()
    search = settings["search"]
    layers = len(settings.models[REFERENCE].layers)
    assert layers * (len(search["betas"]) + search["midpoints"]) == search["runs"] == 18
    assert list(settings.models[REFERENCE].layers) == [28, 29, 30]
    assert len(settings["grid"]["betas"]) == 16
    grid = {entry.row for entry in published()["tab:layer-beta-grid"].values[REFERENCE]}
    named = {f"layer {layer}, beta {beta:g}" for layer in (28, 29, 30) for beta in settings["grid"]["betas"]}
    assert grid == named
    for name in ("Gemma-3-12B", "Gemma-3-27B"):
        gemma = settings.models[name]
        assert (list(gemma.layers), list(gemma.betas)) == ([gemma.blocks - 3], [0.5, 1.0])


def test_arms_rows_and_benchmarks_are_known_names() -> None:
    settings = protocol()
    assert set(settings["methods"]) <= set(DECODERS)
    assert set(settings["benchmarks"]) <= set(BENCHMARKS)
    for section, label in (
        ("ablation", "tab:ablation-chair-detail"),
        ("readouts", "tab:normalized-readout-control"),
        ("rules", "tab:registration-rules"),
    ):
        arms = settings[section]["arms"]
        assert set(arms) <= {*WORDS, "base"}
        assert set(arms.values()) == set(published()[label].rows)
    assert len(settings["readouts"]["arms"]) == 7
    assert set(settings["specificity"].values()) == set(published()["tab:image-specificity"].rows)
    sizes = {str(size) for size in settings["sizes"]}
    assert sizes | {"Base"} == set(published()["tab:calibration-size"].rows)
    assert set(settings["corpora"]) | {"Base"} == set(published()["tab:calibration-corpus"].rows)
    assert settings["corpora"]["pooled"]["images"] == sum(
        settings["corpora"][one]["images"] for one in settings["corpora"]["pooled"]["of"]
    )
    inventory = published()["tab:evaluation-inventory"].values["all"]
    for one in settings["benchmarks"].values():
        found = {e.metric: value.value for e, value in inventory.items() if e.row == one["title"]}
        assert found == {"Records": one["records"], "New tokens": one["max_new_tokens"]}


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("llava-hf/llava-1.5-7b-hf", "LLaVA-1.5-7B"),
        ("/models/llava-1.5-13b-hf/", "LLaVA-1.5-13B"),
        ("Qwen/Qwen2.5-VL-32B-Instruct", "Qwen2.5-VL-32B"),
        ("liuhaotian/llava-v1.6-mistral-7b", "LLaVA-NeXT-7B"),
    ],
)
def test_a_checkpoint_is_recognized(given: str, name: str) -> None:
    found = protocol().model(given)
    assert found is not None
    assert found[0] == name


def test_another_checkpoint_is_not() -> None:
    assert protocol().model("world") is None


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    for split, first in (("train", 1), ("val", 90_001)):
        images = [{"id": n, "file_name": f"{n}.jpg"} for n in range(first, first + 8000)]
        page = {"images": images, "annotations": [], "categories": []}
        for kind in ("captions", "instances"):
            (tmp_path / f"{kind}_{split}2014.json").write_text(json.dumps(page))
    return tmp_path


def test_sets_have_their_sizes_and_stay_apart(coco: Path) -> None:
    drawn = Images(coco)
    sets = {name: drawn.ids(name) for name in protocol().images}
    assert {name: len(ids) for name, ids in sets.items()} == {
        name: one.count for name, one in protocol().images.items() if name != "held-out"
    } | {"held-out": min(4969, len(set(sets["development"]) - set(sets["calibration"])))}
    assert not set(sets["tuning"]) & set(sets["calibration"])
    assert not set(sets["held-out"]) & set(sets["calibration"])
    assert set(sets["held-out"]) < set(sets["development"])
    assert sets["development-200"] == sets["development"][:200]
    assert min(sets["evaluation"]) > 90_000


def test_the_panel_continues_the_stream_of_the_calibration(coco: Path) -> None:
    drawn = Images(coco)
    panel, tuned = drawn.ids("panel"), set(drawn.ids("tuning"))
    pool = [n for n in range(1, 8001) if n not in tuned]
    stream = random.Random(4242)
    first = stream.sample(pool, 500)
    second = stream.sample([n for n in pool if n not in set(first)], 500)
    assert panel == sorted(first) + sorted(second)
    assert panel[:500] == drawn.ids("calibration")


def test_a_trial_draws_fewer_and_an_empty_pool_is_refused(coco: Path) -> None:
    drawn = Images(coco, limit=4)
    assert [len(drawn.ids(name)) for name in ("tuning", "calibration", "panel", "held-out")] == [4, 4, 8, 4]
    small = coco / "small"
    small.mkdir()
    page = {"images": [{"id": n, "file_name": f"{n}.jpg"} for n in range(5)], "annotations": []}
    for kind in ("captions", "instances"):
        (small / f"{kind}_train2014.json").write_text(json.dumps(page | {"categories": []}))
    with pytest.raises(InputError, match="train2014"):
        Images(small).ids("calibration")


def test_what_the_paper_leaves_open_is_on_its_page():
    page = (Path(__file__).parents[3] / "docs" / "studies.md").read_text()
    for one in protocol()["open"]:
        assert f"| {one['question']} | {one['choice']} | {one['switch'] or '–'} |" in page
