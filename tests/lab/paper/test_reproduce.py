"""The protocol on a small COCO that is drawn here: planned with a random model, run whole with the embedded one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import reweigh.cli.reproduce
from reweigh.cli.app import app
from reweigh.errors import InputError, UnknownNameError
from reweigh.files.outputs import RECORD
from reweigh.lab.paper.published import published
from reweigh.lab.paper.reproduce import METHODS, Pace, Protocol, Step, chosen_steps, latencies, measure_pace
from reweigh.lab.tasks.chair.benchmark import CHAIR
from reweigh.world.scenes import scene

SCENES = {number: scene("tuning", index=number) for number in (*range(100, 112), *range(500, 512))}
CATEGORIES = sorted({name for one in SCENES.values() for name in one.objects})


@pytest.fixture(scope="module")
def coco(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coco")
    (folder / "annotations").mkdir()
    (folder / "synonyms.txt").write_text("".join(f"{name}\n" for name in CATEGORIES))
    for split, first in (("train", 100), ("val", 500)):
        (folder / f"{split}2014").mkdir()
        images = []
        for number in range(first, first + 12):
            name = f"COCO_{split}2014_{number:012d}.png"
            SCENES[number].image().save(folder / f"{split}2014" / name)
            images.append({"id": number, "file_name": name})
        captions = [{"image_id": one["id"], "caption": "A picture."} for one in images]
        boxes = [
            {"image_id": one["id"], "category_id": CATEGORIES.index(name), "iscrowd": 0}
            for one in images
            for name in SCENES[one["id"]].objects
        ]
        kinds = [{"id": i, "name": name} for i, name in enumerate(CATEGORIES)]
        for kind, rows, more in (("captions", captions, {}), ("instances", boxes, {"categories": kinds})):
            page = {"images": images, "annotations": rows, **more}
            (folder / "annotations" / f"{kind}_{split}2014.json").write_text(json.dumps(page))
    return folder


def test_calibration_and_tuning_share_no_image(coco, tmp_path):
    protocol = Protocol("m", coco, tmp_path, limit=5)
    drawn = protocol.draw()
    assert protocol.manifest.read_text().splitlines() == [str(path) for path in drawn]
    tuned = {record.image for record in CHAIR(coco, split="train").records(limit=5, seed=42)}
    assert len(drawn) == len(tuned) == 5
    assert tuned.isdisjoint(path.name for path in drawn)
    assert all(path.parent.name == "train2014" for path in drawn)
    with pytest.raises(InputError, match="tuning"):
        Protocol("m", coco, tmp_path).draw()  # twelve images are all tuned on


def test_the_protocol_is_the_papers(coco, tmp_path):
    steps = {
        one.name: one for one in Protocol("m", coco, tmp_path, judge=["--judge-option", "model=m"]).steps()
    }
    assert list(steps)[:4] == ["calibrate", "tune", "chair", "amber"]
    assert list(steps)[-2:] == ["ablate", "study"]
    assert ",".join(METHODS) == "base,vcd,opera,dola,pai,revisit,reweigh"
    assert steps["calibrate"].descriptions == 500
    assert steps["calibrate"].command.count("--layer") == 3
    assert steps["tune"].descriptions == pytest.approx(500 * (1 + 18 * latencies()["reweigh"]))
    assert steps["chair"].descriptions == pytest.approx(500 * sum(latencies().values()))
    assert steps["rate mmhal vcd"].command[-2:] == ("--judge-option", "model=m")


def test_what_is_missing_is_named(coco, tmp_path, monkeypatch):
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    steps = {one.name: one for one in Protocol("m", coco, tmp_path).steps()}
    assert steps["chair"].missing is None
    assert "annotations.json" in steps["amber"].missing
    assert "reweigh data mmhal" in steps["mmhal vcd"].missing
    (tmp_path / "data" / "mmvet").mkdir(parents=True)
    again = {one.name: one for one in Protocol("m", coco, tmp_path).steps()}
    assert "--judge-option" in again["rate mmvet base"].missing
    nowhere = {one.missing for one in Protocol("m", tmp_path / "no", tmp_path).steps()}
    assert len(nowhere) == 1
    assert nowhere.pop().startswith(f"{tmp_path / 'no' / 'train2014'}, ")


def test_hours_follow_from_the_pace():
    assert Pace(36.0, 3.6).hours(Step("x", (), descriptions=100, words=1000)) == pytest.approx(2.0)


def test_the_pace_stops_after_its_time(coco, monkeypatch):
    asked, clock = [], iter(range(0, 1000, 10))
    monkeypatch.setattr(
        "reweigh.lab.paper.reproduce.time", SimpleNamespace(perf_counter=lambda: float(next(clock)))
    )
    session = SimpleNamespace(describe=lambda picture, prompt, max_new_tokens: asked.append(max_new_tokens))
    pictures = sorted((coco / "train2014").glob("*.png"))
    pace = measure_pace(session, pictures, prompt="?", tokens=512, seconds=25)
    assert asked == [512] * 3 + [1] * 3
    assert (pace.description, pace.word) == (pytest.approx(40 / 3), pytest.approx(10 / 3))


def in_process(command, check):
    done = CliRunner().invoke(app, command[3:], catch_exceptions=False)
    return subprocess.CompletedProcess(command, done.exit_code)


def call(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


@pytest.fixture
def small(coco, checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("REWEIGH_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(reweigh.cli.reproduce, "MINUTE", 0.0)
    monkeypatch.setattr(reweigh.cli.reproduce.subprocess, "run", in_process)
    out = tmp_path / "out"
    return [checkpoint("llava"), "--coco", coco, "-o", out, "--limit", 3, "--max-new-tokens", 6], out


def test_the_plan_runs_nothing_but_a_measurement(small):
    arguments, out = small
    done = call(*arguments, "--plan", "--json")
    assert done.exit_code == 0, done.output
    page = json.loads(done.stdout)
    hours = {one["step"]: one["hours"] for one in page["steps"]}
    assert hours["chair"] > hours["calibrate"] > 0
    assert hours["amber"] is None
    assert sorted(path.name for path in out.iterdir()) == [RECORD, "calibration.txt"]
    shown = call(*arguments, "--plan")
    assert "hours here" in shown.stdout


def test_the_plan_needs_no_coco_and_lists_every_table_of_the_paper(tmp_path):
    done = call("world", "--coco", tmp_path / "no", "-o", tmp_path / "out", "--plan", "--json")
    assert done.exit_code == 0, done.output
    page = json.loads(done.stdout)
    assert {one["label"] for one in page["tables"]} == set(published())
    for one in page["tables"]:
        table = published()[one["label"]]
        assert one["by"].startswith("reweigh ") == bool(table.run), one
    assert all(one["command"][0] == "reweigh" for one in page["steps"])
    lacks = page["steps"][0]["missing"]
    for name in ("train2014", "val2014", "captions_train2014.json", "instances_val2014.json"):
        assert name in lacks, "everything at once"


def test_steps_are_chosen_by_name():
    steps = Protocol("m", Path("coco"), Path("out"), judge=["--judge-option", "model=m"]).steps()
    assert chosen_steps(steps, None) == {one.name for one in steps}
    assert chosen_steps(steps, "calibrate, chair") == {"calibrate", "chair"}
    assert {one.name for one in steps} - chosen_steps(steps, "-tune") == {"tune"}
    with pytest.raises(UnknownNameError, match="did you mean ablate"):
        chosen_steps(steps, "ablat")


def test_what_may_stop_a_step_is_said_at_once(coco, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr("reweigh.lab.paper.reproduce.ROOM", 1 << 60)
    said = " ".join(Protocol("m", coco, tmp_path / "out", judge=["--judge-option", "model=m"]).warnings())
    assert "OPENAI_API_KEY" in said
    assert "GB left" in said
    own = Protocol("m", coco, tmp_path, judge=["--judge-option", "url=http://localhost:1"]).warnings()
    assert "OPENAI_API_KEY" not in " ".join(own)


def methods_of(command):
    return command[command.index("-m", 3) + 1].split(",") if "compare" in command else []


def test_a_failed_and_a_killed_rival_are_named_and_all_else_is_run(small, monkeypatch):
    arguments, _ = small
    ran, broken = [], {"opera": -9, "pai": 1}

    def run(command, check):
        ran.append(command[3:])
        code = next((broken[one] for one in methods_of(command) if one in broken), 0)
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(reweigh.cli.reproduce.subprocess, "run", run)
    first = call(*arguments)
    assert "chair: opera was killed by signal 9" in str(first.exception)
    assert "pai ended with exit code 1" in str(first.exception)
    compared = [",".join(methods_of(["", "-m", "", *one])) for one in ran if one[0] == "compare"]
    alone = [f"base,{one}" for one in ("vcd", "opera", "dola", "pai", "revisit", "reweigh")]
    assert compared == [",".join(METHODS), *alone, "base,vcd,dola,revisit,reweigh"]
    assert [one[0] for one in ran][-2:] == ["ablate", "study"]
    broken.clear()
    ran.clear()
    assert call(*arguments).exit_code == 0
    assert [one[0] for one in ran] == ["compare", "study"], "what failed, and the pages"
    ran.clear()
    assert call(*arguments).exit_code == 0
    assert ran == []


def test_without_a_table_nothing_else_is_tried(small, monkeypatch):
    arguments, _ = small
    monkeypatch.setattr(
        reweigh.cli.reproduce.subprocess,
        "run",
        lambda command, check: subprocess.CompletedProcess(command, 1),
    )
    said = str(call(*arguments).exception)
    assert "calibrate: ended with exit code 1" in said
    assert "study: it needs the table" in said


@pytest.mark.slow
def test_the_command(small, monkeypatch):
    pytest.importorskip("nltk", reason="needs the extra 'eval'")
    (_, *arguments), out = small
    arguments = ["world", *arguments[:-1], 30]

    def without(command, check):
        """OPERA is killed, and PAI fails."""
        code = next(
            ({"opera": -9, "pai": 1}[one] for one in methods_of(command) if one in ("opera", "pai")), None
        )
        return in_process(command, check) if code is None else subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(reweigh.cli.reproduce.subprocess, "run", without)
    first = call(*arguments)
    assert "opera was killed" in str(first.exception)

    def rows():
        page = json.loads((out / "study" / "paper" / "paper.json").read_text())
        assert page["tab:signal-ablation"]["measured"]
        return {cell["row"] for one in page["tab:chair-full"]["measured"] for cell in one["values"]}

    assert {"Base", "VCD", "DoLa", "ReVisiT", "ReWEIGH"} <= rows()
    assert not {"OPERA", "PAI"} & rows()
    monkeypatch.setattr(reweigh.cli.reproduce.subprocess, "run", in_process)
    second = call(*arguments)
    assert second.exit_code == 0, second.output
    assert {"Base", "VCD", "OPERA", "DoLa", "PAI", "ReVisiT", "ReWEIGH"} <= rows()


def test_a_folder_without_coco_is_refused(tmp_path):
    done = call("world", "--coco", tmp_path, "-o", tmp_path / "out")
    assert "train2014" in str(done.exception)
