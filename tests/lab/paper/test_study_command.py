"""The command on the embedded model, with a small calibration of its own so that it takes seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from reweigh.cli.app import app
from reweigh.files.artifacts import LEFTOVER

run = CliRunner().invoke

NAMES = "scale,rescaling,tokens,references"


def test_the_list_and_an_unknown_name_need_no_model(tmp_path):
    listed = run(app, ["study", "list"])
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in NAMES.split(","))
    wrong = run(app, ["study", "scal", "-o", str(tmp_path / "x")])
    assert wrong.exit_code != 0
    assert "did you mean scale" in str(wrong.exception)
    assert not (tmp_path / "x").exists()


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> tuple[Path, Path]:
    """The pictures and the table of a calibration on 40 scenes."""
    folder = tmp_path_factory.mktemp("calibrated")
    run(app, ["world", "draw", "-o", str(folder / "pictures"), "--count", "40"])
    options = ["--layer", "2", "--batch-size", "20", "--max-new-tokens", "48"]
    done = run(app, ["calibrate", "world", str(folder / "pictures"), "-o", str(folder / "table"), *options])
    assert done.exit_code == 0, done.output + str(done.exception)
    return folder / "pictures", folder / "table"


def arguments(calibrated, out, names=NAMES):
    pictures, table = calibrated
    given = ["--calibration", str(pictures), "--table", str(table), "--beta", "2.1", "-o", str(out)]
    return [
        "study",
        names,
        *given,
        "--option",
        "scenes=30",
        "--batch-size",
        "15",
        "--json",
    ]


def tree(folder: Path) -> dict[str, bytes]:
    left = (".lock", LEFTOVER)  # a killed writer leaves its temporary file, which nothing reads
    files = (path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(left))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.slow
def test_studies_of_the_embedded_model(calibrated, tmp_path):
    done = run(app, arguments(calibrated, tmp_path / "study"))
    assert done.exit_code == 0, done.output + str(done.exception)
    found = {one["study"]: one for one in json.loads(done.stdout)["studies"]}
    assert list(found) == NAMES.split(",")
    assert all(one["unmet"] is None and one["rows"] and one["sentences"] for one in found.values())
    still = [
        row for row in found["rescaling"]["rows"] if row["arm"] == "rank" and "change" in row["quantity"]
    ]
    assert still
    assert all(row["value"] == 0 for row in still)
    shares = [
        row["value"]
        for row in found["tokens"]["rows"]
        if row["weighting"] == "image-balanced" and row["least_images"] == 5 and "token" in row["quantity"]
    ]
    assert np.sum(shares) == pytest.approx(1.0)
    whole = tree(tmp_path / "study")
    assert {"rescaling/figure.svg", "tokens/table.csv"} <= set(whole)
    again = run(app, arguments(calibrated, tmp_path / "study"))
    assert again.stdout == done.stdout
    assert tree(tmp_path / "study") == whole


@pytest.mark.slow
def test_a_study_that_reads_no_calibration_images_does_not_describe_them(calibrated, tmp_path):
    done = run(app, arguments(calibrated, tmp_path / "study", "confidence"))
    assert done.exit_code == 0, done.output + str(done.exception)
    assert [path.name for path in (tmp_path / "study" / "corpus").iterdir()] == ["evaluation"]


CHILD = """
import os, random, signal, sys, time
from reweigh.cli.app import app
from reweigh.cli.common import Loading
from typer.testing import CliRunner

loaded = Loading(model_option=["device=cpu"]).load("world")
Loading.load = lambda self, name: loaded  # once for all children


def forked(out, seconds=None):
    child = os.fork()
    if child == 0:
        done = CliRunner().invoke(app, [*sys.argv[2:], "-o", out])
        os._exit(done.exit_code)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


begin = time.monotonic()
assert forked(sys.argv[1] + "/whole") == 0
length = time.monotonic() - begin
dice, kills = random.Random(3), 0
while kills < 3 and forked(sys.argv[1] + "/killed", dice.uniform(0.1, 0.5) * length) != 0:
    kills += 1
assert forked(sys.argv[1] + "/killed") == 0
print("kills", kills)
"""


@pytest.mark.slow
def test_killed_anywhere_it_resumes_and_ends_with_the_same_bytes(calibrated, tmp_path):
    command = [part for part in arguments(calibrated, "", "scale,tokens") if part not in ("-o", "")]
    child = [sys.executable, "-c", CHILD, str(tmp_path), *command]
    done = subprocess.run(child, capture_output=True, text=True, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    assert "kills 0" not in done.stdout
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
