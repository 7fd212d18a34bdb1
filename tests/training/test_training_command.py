"""``python -m tools.training`` as a user runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from reweigh.errors import UnknownNameError
from reweigh.files.artifacts import read_json, read_jsonl
from reweigh.world.scenes import scene
from reweigh.world.vocabulary import mentions
from tools.training import recipe
from tools.training.__main__ import app
from tools.training.learning import LOG
from tools.training.speaking import load

runner = CliRunner()


def test_sample_writes_a_sheet_and_tells_the_truth(tmp_path: Path) -> None:
    target = tmp_path / "sheet.png"
    done = runner.invoke(
        app,
        [
            "sample",
            "-o",
            str(target),
            "--count",
            "3",
            "--seed",
            "4",
            "--split",
            "tuning",
            "--size",
            "64",
            "--json",
        ],
    )
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["scenes"]
    assert [row["id"] for row in rows] == [scene("tuning", i, 4).id for i in range(3)]
    for row in rows:
        said = {m[3] for m in mentions(row["description"])}
        assert said - set(row["objects"]) == set(row["made_up"])
    with Image.open(target) as sheet:
        assert sheet.width == 3 * 80


def test_sample_shows_all_drawings(tmp_path: Path) -> None:
    done = runner.invoke(app, ["sample", "-o", str(tmp_path / "all.png"), "--drawings"])
    assert done.exit_code == 0, done.output
    assert "all drawings" in done.stdout


def test_an_unknown_split_is_named() -> None:
    done = runner.invoke(app, ["sample", "--split", "test"])
    assert isinstance(done.exception, UnknownNameError)


@pytest.mark.slow
def test_check_prints_figures() -> None:
    done = runner.invoke(app, ["check", "--scenes", "4", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n"] == 4


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> tuple[recipe.Stage, ...]:
    """The recipe's own stages, two steps of two scenes each."""
    stages = tuple(
        replace(stage, plan=replace(stage.plan, steps=2, every=1, log=1), batch=2) for stage in recipe.RECIPE
    )
    monkeypatch.setattr(recipe, "RECIPE", stages)
    return stages


def logged(folder: Path) -> list[tuple[str, int]]:
    return [(row["stage"], row["step"]) for row in read_jsonl(folder / LOG)]


@pytest.mark.slow
def test_train_leaves_a_checkpoint_and_resumes_with_the_next_stage(
    tmp_path: Path, short: tuple[recipe.Stage, ...]
) -> None:
    def train(*more: str) -> list[tuple[str, int]]:
        done = runner.invoke(app, ["train", "-o", str(tmp_path), "--workers", "1", *more])
        assert done.exit_code == 0, done.output + str(done.exception)
        assert done.stdout.strip().endswith(str(tmp_path / "checkpoint"))
        return logged(tmp_path)

    assert train("--stage", "see") == [("see", 0), ("see", 1)]
    assert train() == [(name, step) for name in ("see", "speak", "answer") for step in range(2)]
    assert len(train()) == 6, "a finished training is not run again"
    assert [one["plan"]["steps"] for one in read_json(tmp_path / "checkpoint" / "training.json")] == [2] * 3
    model, processor = load(tmp_path / "checkpoint")
    trained = recipe.weights(tmp_path, "answer")["model.multi_modal_projector.linear_1.weight"]
    assert model.model.multi_modal_projector.linear_1.weight.equal(trained.half().float())
    assert len(processor.tokenizer) == model.config.text_config.vocab_size


def test_train_names_an_unknown_stage(tmp_path: Path) -> None:
    done = runner.invoke(app, ["train", "-o", str(tmp_path / "out"), "--stage", "speek"])
    assert isinstance(done.exception, UnknownNameError)
    assert "did you mean speak" in str(done.exception)
    assert not (tmp_path / "out").exists()
