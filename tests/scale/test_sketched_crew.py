"""Sketches of a crew's batches, some of which fail or come late: the bytes of one machine."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
from PIL import Image

from reweigh.calibration import sums
from reweigh.calibration.complete import carry_out
from reweigh.scale import calibrate as scaled
from reweigh.scale.calibrate import Calibrator, calibrate_on
from reweigh.scale.crew import Report
from reweigh.tables.observations import ImageObservations

MADE_WITH = {"identity": {"model_id": "me/model"}, "layers": [1], "batch_size": 2}
IMAGES = [(f"{n:02d}.png", Image.new("RGB", (4, 4), (n, 0, 0))) for n in range(23)]


class Job:
    """Sees in each picture what its red says."""

    batch_size = 2

    def made_with(self):
        return dict(MADE_WITH)

    def inputs(self, pictures):
        return {"red": [picture.getpixel((0, 0))[0] for picture in pictures]}

    def observe(self, keys, inputs):
        rows = []
        for key, red in zip(keys, inputs["red"], strict=True):
            values = np.random.default_rng(red).uniform(0.001, 1, (1, 5)).astype(np.float32)
            rows.append(ImageObservations(key, np.arange(5), np.full(5, 2), values))
        return rows


class Crew:
    """Two workers in this process; every third shard is lost once, and reports come last first."""

    described = MADE_WITH

    def __init__(self):
        self.worker, self.time, self.given, self.lost = Calibrator(Job()), 0.0, {}, set()

    def now(self):
        return self.time

    def idle(self):
        return [worker for worker in ("a", "b") if worker not in self.given]

    def give(self, worker, shard, task):
        self.given[worker] = shard, task

    def wait(self):
        self.time += 1
        worker = max(self.given)
        shard, task = self.given.pop(worker)
        if shard % 3 == 0 and shard not in self.lost:
            self.lost.add(shard)
            return [Report(worker, shard, failure="lost")]
        return [Report(worker, shard, self.worker.work(task))]


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("bins", [None, 16])
def test_a_crew_leaves_the_bytes_of_one_machine(tmp_path, monkeypatch, bins):
    @contextmanager
    def crew(*_given):
        yield Crew()

    monkeypatch.setattr(sums, "FAN", 3)
    monkeypatch.setattr(scaled, "ray_crew", crew)
    calibrate_on(None, None, {}, IMAGES, out=tmp_path / "crew", rule="count-2", sketch=bins, show=False)
    carry_out(Job(), IMAGES, out=tmp_path / "alone", rule="count-2", sketch=bins, show=False)
    assert tree(tmp_path / "crew") == tree(tmp_path / "alone")
    assert ("sketches.safetensors" in tree(tmp_path / "crew")) == (bins is not None)
