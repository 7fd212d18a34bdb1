"""``reweigh world draw`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

from PIL import Image
from typer.testing import CliRunner

from reweigh.cli.world import app
from reweigh.world.scenes import scene

runner = CliRunner()


def test_draw_writes_the_scenes_themselves(tmp_path: Path) -> None:
    done = runner.invoke(app, ["draw", "-o", str(tmp_path), "--count", "3", "--split", "tuning"])
    assert done.exit_code == 0, done.output
    assert sorted(path.stem for path in tmp_path.iterdir()) == [scene("tuning", i).id for i in range(3)]
    with Image.open(tmp_path / f"{scene('tuning', 2).id}.png") as picture:
        assert picture.convert("RGB").tobytes() == scene("tuning", 2).image().tobytes()


def test_draw_writes_the_truth_beside_the_scenes(tmp_path: Path) -> None:
    made = ["draw", "-o", str(tmp_path), "--count", "3", "--split", "tuning", "--boxes"]
    done = runner.invoke(app, made)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in (tmp_path / "boxes.jsonl").read_text().splitlines()]
    assert len(rows) == 3
    words = (tmp_path / "words.txt").read_text().splitlines()
    assert {"person", "people", "woman", "glass", "glasses", "dog"} <= set(words)
    assert all(" " not in word for word in words)
    for index, row in enumerate(rows):
        shown = scene("tuning", index)
        assert (tmp_path / row["image"]).is_file()
        boxes = [tuple(round(112 * edge) for edge in one["box"]) for one in row["objects"]]
        assert boxes == [box for _, box in shown.boxes()]
        assert [one["words"][0] for one in row["objects"]] == [name.split()[-1] for name, _ in shown.boxes()]
