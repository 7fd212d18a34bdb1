"""A real local Ray: workers and the driver are killed with -9 under way, and the bytes are those of one machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from checkpoints import picture
from reweigh.errors import InputError, MissingExtraError
from reweigh.scale.ray_crew import Cluster, ray_crew

PATIENCE = 240
"""Seconds after which a cluster that does not move has hung."""


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def reweigh(*arguments):
    """Start a command of its own process, one thread each, as actors have."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "reweigh", *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def until(condition, process):
    """Wait for something to become true while a process runs."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def actors(process):
    """The processes in which actors of a local cluster live."""
    import psutil

    found = []
    for child in psutil.Process(process.pid).children(recursive=True):
        try:
            if child.cmdline()[:1] and child.cmdline()[0].startswith("ray::Actor"):
                found.append(child)
        except psutil.Error:
            continue
    return found


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        picture(number, (40 + number, 50)).save(folder / f"{number:02d}.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the actors' processes in /proc")
def test_killed_workers_and_a_killed_driver_change_no_byte(checkpoint, images, tmp_path):
    pytest.importorskip("ray", reason="ray is not installed")
    psutil = pytest.importorskip("psutil", reason="psutil is not installed")
    given = [
        "calibrate",
        checkpoint("llava"),
        images,
        "-l",
        "1",
        "-l",
        "3",
        "--max-new-tokens",
        "120",
        "--batch-size",
        "2",
    ]
    given += ["--device", "cpu"]
    alone = reweigh(*given, "-o", tmp_path / "alone")
    assert "10 images, 1 skipped" in alone.communicate(timeout=PATIENCE)[0]
    out = tmp_path / "out"
    on_ray = [*given, "-o", out, "--ray", "local", "--ray-workers", "2"]

    def parts():
        return len(list(out.glob(".reweigh-work/part-*.safetensors")))

    driver = reweigh(*on_ray)
    until(lambda: parts() >= 1, driver)
    victim = actors(driver)[0]
    victim.kill()
    until(lambda: parts() >= 2, driver)
    below = psutil.Process(driver.pid).children(recursive=True)
    driver.kill()
    driver.communicate()
    assert not (out / "calibration.json").exists()
    kept = {path: path.stat().st_mtime_ns for path in out.glob(".reweigh-work/part-*.safetensors")}
    assert kept
    again = reweigh(*on_ray)
    until(lambda: parts() > len(kept) or (out / "calibration.json").exists(), again)
    assert all(not path.exists() or path.stat().st_mtime_ns == before for path, before in kept.items())
    assert "10 images, 1 skipped" in again.communicate(timeout=PATIENCE)[0]
    assert tree(out) == tree(tmp_path / "alone")
    for process in psutil.wait_procs(below, timeout=20)[1]:  # of the killed driver; Ray ends its own
        process.kill()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray") as caught, ray_crew(Cluster(), dict, {}):
        pass
    assert "reweigh[ray]" in str(caught.value)


@pytest.mark.parametrize(
    ("asked", "resources", "size"),
    [
        ({}, {"CPU": 8}, 8),
        ({"workers": 3}, {"CPU": 8}, 3),
        ({"workers": 30}, {"CPU": 8}, 8),
        ({"gpus": 2}, {"CPU": 64, "GPU": 9}, 4),
        ({"gpus": 0.5, "cpus": 4}, {"CPU": 64, "GPU": 9}, 16),
        ({"cpus": 0}, {"CPU": 64}, 1),
    ],
)
def test_as_many_workers_as_fit(asked, resources, size):
    assert Cluster(**asked).size(resources) == size


def test_what_fits_nowhere_is_refused():
    with pytest.raises(
        InputError, match="no worker with 1 GPUs and 1 CPUs fits the cluster, which has 0 and 4"
    ):
        Cluster(gpus=1).size({"CPU": 4.0})
    with pytest.raises(InputError, match="0 workers"):
        Cluster(workers=0)
