"""A real ``kill -9`` at random moments: the same command goes on and ends with the bytes of an undisturbed run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import picture

CHILD = """
import os, random, signal, sys, time
sys.path.insert(0, sys.argv[4])
from pathlib import Path
from checkpoints import load
import reweigh

model, processor = load(Path(sys.argv[1]))
images, out = Path(sys.argv[2]), Path(sys.argv[3])


def run(folder):
    reweigh.calibrate(
        model, processor, images, layers=[1, 3], max_new_tokens=8, batch_size=2, out=folder, show=False
    )


def forked(folder, seconds=None):
    child = os.fork()
    if child == 0:
        run(folder)
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


begin = time.monotonic()
assert forked(out / "whole") == 0
length = time.monotonic() - begin
dice, kills = random.Random(7), 0
for number in range(3):
    for _ in range(6):
        if forked(out / f"killed-{number}", dice.uniform(0, length * 0.4)) == 0:
            break
        kills += 1
    else:
        assert forked(out / f"killed-{number}") == 0
print("kills", kills)
"""


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork to start a loaded model many times")
def test_kill_nine_at_random_moments(checkpoint, tmp_path):
    images, out = tmp_path / "images", tmp_path / "out"
    images.mkdir()
    for number in range(5):
        picture(number).save(images / f"{number}.png")
    (images / "broken.png").write_bytes(b"no image")
    arguments = [str(checkpoint("llava")), str(images), str(out), str(Path(__file__).parents[1])]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) >= 1
    expected = tree(out / "whole")
    assert "calibration.json" in expected
    for number in range(3):
        assert tree(out / f"killed-{number}") == expected
