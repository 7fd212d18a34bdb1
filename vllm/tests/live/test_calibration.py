"""A calibration inside vLLM sees what the transformers engine sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from harness import TOKENS, V2, Reference, reference_folder, stopped

from reweigh.calibration.calibrate import calibrate_with
from reweigh.calibration.result import Calibration
from reweigh.calibration.settings import CalibrationSettings
from reweigh.job import Job
from reweigh.tables.table import ReferenceTable

OPTIONS = {
    "enforce_eager": True,
    "distributed_executor_backend": "uni",
    "max_num_seqs": 4,
    "mm_processor_kwargs": {"use_fast": False},
}
PATIENCE = 600


def calibrate(world, images, out, **settings):
    from reweigh_vllm.calibration import VllmJob

    given = CalibrationSettings(**settings, rule="count-1")
    with stopped():
        job = VllmJob(str(world.checkpoint), given, name=str(world.checkpoint), engine=OPTIONS)
        try:
            return calibrate_with(job, images, given, out=out)
        finally:
            job.llm.llm_engine.engine_core.shutdown()
            del job


def test_observations_are_the_transformers_engine_s(world: Reference, tmp_path):
    kept = Calibration.load(reference_folder("world") / f"observed-{TOKENS}")
    images = [(f"{number}.png", picture) for number, picture in enumerate(world.pictures)]
    layers = kept.observations.layers
    found = calibrate(world, images, tmp_path / "out", layers=layers, max_new_tokens=TOKENS, batch_size=32)
    mine, theirs = found.observations, kept.observations
    assert mine.images == theirs.images
    assert np.array_equal(mine.token, theirs.token)
    assert np.array_equal(mine.count, theirs.count)
    # A rank moves by one where two of 864 logits differ in the last bit, which the two programs round differently.
    assert (mine.values != theirs.values).mean() < 0.01
    assert np.abs(mine.values - theirs.values).max() < 1e-5
    table = ReferenceTable.from_pretrained(tmp_path / "out", layer=theirs.layers[-1])
    own = table.about["identity"]
    recorded = kept.about["identity"]
    for part in ("architecture", "blocks", "vocab_size", "tokenizer", "images", "weights"):
        assert own[part] == recorded[part], part


def command(*arguments):
    """Start a command in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-m", "reweigh", *map(str, arguments)], env=environment)


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.skipif(V2, reason="three engines on the interpreter take minutes, and resuming knows no runner")
def test_the_command_is_killed_and_resumes_in_an_actor(world: Reference, tmp_path):
    """With -9 after the first part; then on a local Ray, whose actor has vLLM: the bytes are those of one run here."""
    pytest.importorskip("ray", reason="ray is not installed")
    images, out = tmp_path / "images", tmp_path / "out"
    images.mkdir()
    for number, picture in enumerate(world.pictures):
        picture.save(images / f"{number}.png")
    calibrate(world, images, tmp_path / "alone", layers=[world.layer], max_new_tokens=40)
    given = ["calibrate", world.checkpoint, images, "-o", out, "-l", world.layer, "--engine", "vllm"]
    given += ["--max-new-tokens", 40, "--batch-size", 1, "--rule", "count-1"]
    for name, value in OPTIONS.items():
        given += ["--engine-option", f"{name}={json.dumps(value)}"]
    begun, end = command(*given), time.monotonic() + PATIENCE
    while not (out / "rows.jsonl").exists():
        assert begun.poll() is None
        assert time.monotonic() < end
        time.sleep(0.005)
    begun.kill()
    begun.wait()
    assert not (out / "manifest.json").exists(), "it was to be killed before its end"
    assert 1 <= len(Job.read(out).done) < len(world.pictures)
    assert command(*given, "--ray", "local,workers=1").wait(PATIENCE) == 0
    assert tree(out) == tree(tmp_path / "alone")
