"""``kill -9`` at random moments of every command that writes: the same command resumes and ends with the same bytes.

What measures time (costs) or notes every try (counts of edits) cannot have the same bytes; what is made of it is read.
``reweigh serve`` is killed in tests/serve/test_serve_process.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reweigh.files.outputs import RECORD
from reweigh.lab.tasks.world import World

SHORT = ["--option", "scenes=3", "--limit", "3"]
CALIBRATE = ["calibrate", "world", "{images}", "-o", "{out}", "-l", "2", "-l", "3"]
IMAGES = {"calibrate": 4}
"""Images of the commands that need some."""
COMMANDS = {
    "calibrate": [*CALIBRATE, "--max-new-tokens", "12", "--batch-size", "2"],
    "eval": ["eval", "run", "world", "-b", "world", "--data", "{pictures}", "-o", "{out}", *SHORT],
    "tune": ["tune", "world", "--layers", "2", "--betas", "0.5,1", "-o", "{out}", *SHORT],
    "ablate": ["ablate", "world", "--arms", "global,blind", "-o", "{out}", *SHORT],
    "compare": ["compare", "world", "-m", "base,vcd,reweigh", "-o", "{out}", *SHORT],
}
TIMED = {
    "comparison.md",
    "comparison.html",
    "comparison.tex",
    "comparison.json",
}
PLACES = {"record.json", "manifest.json", "results.json", "report.html", "ablation.json", RECORD}
"""Files that say where they lie, or hash one that does."""


def tree(folder: Path, name: str) -> dict[str, bytes]:
    """Every file of a command's folder that must be the same, with its content."""
    apart = TIMED | PLACES | ({"frame.json"} if name == "compare" else set())  # a comparison's holds times
    return {
        str(path.relative_to(folder)): untimed(path)
        if name == "compare" and path.name == "rows.jsonl"
        else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in apart and path.suffix != ".reweigh-part"
    }


def untimed(path: Path) -> bytes:
    """Rows of a job without their notes, which hold times."""
    rows = (json.loads(line) for line in path.read_text("utf-8").splitlines())
    return json.dumps([{key: value for key, value in row.items() if key != "note"} for row in rows]).encode()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to start a loaded model many times")
@pytest.mark.parametrize("name", COMMANDS)
def test_killed_at_random_moments_it_resumes_and_ends_the_same(tmp_path: Path, name: str) -> None:
    images = tmp_path / "images"
    if name in IMAGES:
        World(images, split="tuning", scenes=IMAGES[name]).records()
        (images / "broken.png").write_bytes(b"no image")
    command = [
        part.format(images=images, pictures=tmp_path / "pictures", out="{out}") for part in COMMANDS[name]
    ]
    done = subprocess.run(
        [sys.executable, "-m", "faults.killing", str(tmp_path), "7", *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout.split()[-1]) >= 1
    expected = tree(tmp_path / "whole", name)
    assert expected
    for folder in sorted(tmp_path.glob("killed-*")):
        assert tree(folder, name) == expected
        # others may write to the pictures at the same time
        left = [
            path
            for path in folder.rglob("*.reweigh-part")
            if "pictures" not in path.relative_to(folder).parts
        ]
        assert left == []
