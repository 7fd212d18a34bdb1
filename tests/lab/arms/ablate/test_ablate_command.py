"""The command on the embedded model: a few scenes, all kinds of arms, and the same bytes when repeated."""

from __future__ import annotations

import json
import shutil

import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.world import operating_point, table_path

run = CliRunner().invoke


def command(out, *more):
    return ["ablate", "world", "--out", str(out), "--limit", "3", *more]


@pytest.mark.slow
def test_an_ablation_leaves_tables_and_resumes_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("reweigh.lab.arms.ablate.run.SHUFFLES", 2)
    arms = ("--arms", "shuffled,cyclic,count-5,unbounded", "--batch-size", "2")
    done = run(app, command(tmp_path, *arms, "--json"))
    assert done.exit_code == 0, done.output + str(done.exception)
    found = json.loads(done.stdout)
    names = [row["arm"] for row in found["arms"]]
    assert names == ["base", "full", "shuffled-0", "shuffled-1", "cyclic", "unbounded", "count-5"]
    assert found["layer"] == operating_point()["layer"]
    assert found["left_out"] == {}
    by_name = {row["arm"]: row for row in found["arms"]}
    assert by_name["base"]["edits"] is None
    assert by_name["full"]["edits"]["escapes"] == 0
    assert 0 < by_name["full"]["fire_candidates"] < by_name["full"]["fire_steps"] < 100
    assert set(by_name["cyclic"]["difference"]) == {"chair_s", "chair_i", "chair_i_distinct", "recall", "f1"}
    for name in ("ablation.json", "ablation.md", "ablation.tex", "report.html"):
        assert (tmp_path / name).stat().st_size > 100
    two = [str(tmp_path / "world" / name) for name in ("full", "cyclic")]
    assert json.loads(run(app, ["eval", "diff", *two, "--json"]).stdout)["n"] == 3

    files = [*tmp_path.glob("world/*/rows.jsonl"), tmp_path / "ablation.json", tmp_path / "ablation.md"]
    whole = {path: path.read_bytes() for path in files}
    (tmp_path / "ablation.json").unlink()
    shutil.rmtree(tmp_path / "world" / "unbounded")
    cut = tmp_path / "world" / "cyclic" / "rows.jsonl"
    cut.write_bytes(cut.read_bytes()[:-5])
    (cut.parent / "manifest.json").unlink()

    again = run(app, command(tmp_path, *arms))
    assert again.exit_code == 0, again.output + str(again.exception)
    assert {path: path.read_bytes() for path in whole} == whole
    assert all(name in again.stdout for name in names)


@pytest.mark.slow
def test_without_kept_observations_registration_by_count_is_left_out(tmp_path):
    point = operating_point()
    layer = f"layer-{point['layer']}"
    alone = tmp_path / "alone" / "table"
    alone.mkdir(parents=True)
    shutil.copy(table_path() / f"{layer}.safetensors", alone)
    more = ("--arms", "count-5,mismatched", "--limit", "1", "--table", str(alone), "--beta", "2")
    done = run(app, command(tmp_path / "out", *more, "--json"))
    assert done.exit_code == 0, done.output + str(done.exception)
    found = json.loads(done.stdout)
    assert set(found["left_out"]) == {"count-5", "mismatched"}
    assert [row["arm"] for row in found["arms"]] == ["base", "full"]
    assert found["beta"] == 2
    assert "count-5" in done.stderr


@pytest.mark.slow
def test_readout_arms_come_from_the_calibration_images(tmp_path):
    pictures, table, out = (str(tmp_path / name) for name in ("pictures", "table", "out"))
    assert run(app, ["world", "draw", "-o", pictures, "--count", "24"]).exit_code == 0
    made = ["-o", table, "--layer", "2", "--batch-size", "12", "--max-new-tokens", "40"]
    assert run(app, ["calibrate", "world", pictures, *made]).exit_code == 0
    given = [
        "--table",
        table,
        "--beta",
        "2.1",
        "--calibration",
        pictures,
        "--arms",
        "probability,zscore-matched",
    ]
    done = run(app, ["ablate", "world", *given, "--limit", "2", "--batch-size", "2", "-o", out, "--json"])
    assert done.exit_code == 0, done.output + str(done.exception)
    found = json.loads(done.stdout)
    names = ["base", "full", "probability", "zscore-matched", "rank-zscore-matched"]
    assert [row["arm"] for row in found["arms"]] == names
    registered = found["registered"]
    assert registered["zscore-matched"] == registered["rank-zscore-matched"] <= registered["full"]
    assert all(row["edits"]["escapes"] == 0 for row in found["arms"][1:])
    assert "probability registers" in (tmp_path / "out" / "ablation.md").read_text()
    without = ["ablate", "world", "--table", table, "--arms", "zscore", "-o", out + "2", "--limit", "2"]
    other = run(app, [*without, "--calibration", str(tmp_path / "nowhere")])
    assert other.exit_code != 0
    assert "manifest" in str(other.exception)
