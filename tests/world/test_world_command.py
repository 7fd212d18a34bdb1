"""``reweigh world`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from reweigh.cli.world import app
from reweigh.errors import UnknownNameError
from reweigh.world.scenes import scene
from reweigh.world.vocabulary import mentions

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


def test_draw_writes_the_scenes_themselves(tmp_path: Path) -> None:
    done = runner.invoke(app, ["draw", "-o", str(tmp_path), "--count", "3", "--split", "tuning"])
    assert done.exit_code == 0, done.output
    assert sorted(path.stem for path in tmp_path.iterdir()) == [scene("tuning", i).id for i in range(3)]
    with Image.open(tmp_path / f"{scene('tuning', 2).id}.png") as picture:
        assert picture.convert("RGB").tobytes() == scene("tuning", 2).image().tobytes()


def test_an_unknown_split_is_named() -> None:
    done = runner.invoke(app, ["sample", "--split", "test"])
    assert isinstance(done.exception, UnknownNameError)


@pytest.mark.slow
def test_check_prints_figures() -> None:
    done = runner.invoke(app, ["check", "--scenes", "4", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["n"] == 4
