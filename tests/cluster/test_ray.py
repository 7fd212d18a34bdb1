"""A real local Ray: workers and the driver are killed with -9 at random moments, and the bytes are those of one machine."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import finish, kill_driver, kill_worker, reweigh, start, until

from checkpoints import picture
from reweigh.cluster import Actor, Cluster, Pool, ray_pool
from reweigh.errors import InputError, MissingExtraError, ReweighError

on_ray = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the actors' processes in /proc")


@pytest.fixture
def ray():
    pytest.importorskip("ray", reason="ray is not installed")
    pytest.importorskip("psutil", reason="psutil is not installed")


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for number in range(10):
        picture(number, (40 + number, 50)).save(folder / f"{number:02d}.png")
    (folder / "broken.png").write_bytes(b"no image")
    return folder


def survive(given, out, done, seed, *, kept=2):
    """Run a command on Ray whose worker is killed, then its driver; run it again, with a worker less to start.

    ``done`` counts what is finished on disk; the driver is killed when there is ``kept`` of it. Returns how much there was
    then, and what was said at the end.
    """
    dice = random.Random(seed)
    driver = reweigh(*given, "-o", out, "--ray", "local,workers=2")
    assert until(lambda: done() >= 1, driver), driver.communicate()[0]
    kill_worker(driver, dice)
    until(lambda: done() >= kept, driver)
    assert driver.poll() is None, "it was to be killed before its end"
    kill_driver(driver, dice)
    return done(), finish(reweigh(*given, "-o", out, "--ray", "local,workers=1"))


def lines(path):
    return path.read_bytes().count(b"\n") if path.exists() else 0


@on_ray
@pytest.mark.slow
def test_a_calibration_survives_kills_without_a_byte_changed(ray, checkpoint, images, tmp_path):
    given = ["calibrate", checkpoint("llava"), images, "-l", "1", "-l", "3", "--max-new-tokens", "120"]
    given += ["--batch-size", "1", "--model-option", "device=cpu"]
    assert "10 images, 1 skipped" in finish(reweigh(*given, "-o", tmp_path / "alone"))
    out = tmp_path / "out"
    kept, said = survive(given, out, lambda: lines(out / "rows.jsonl"), seed=1)
    assert 2 <= kept < 11
    assert "10 images, 1 skipped" in said
    assert tree(out) == tree(tmp_path / "alone")


@on_ray
@pytest.mark.slow
def test_an_evaluation_survives_kills_without_a_byte_changed(ray, checkpoint, tmp_path):
    given = ["eval", "run", checkpoint("llava"), "-b", "world", "--data", tmp_path / "pictures"]
    given += ["--option", "scenes=30", "--decoder", "sampling", "--model-option", "device=cpu"]
    alone, out = tmp_path / "alone" / "run", tmp_path / "out" / "run"  # results name their folder
    finish(reweigh(*given, "-o", alone))
    kept, said = survive(given, out, lambda: lines(out / "rows.jsonl"), seed=2)
    assert 2 <= kept < 30
    assert "new answers" in said
    assert tree(out) == tree(alone)


@on_ray
@pytest.mark.slow
def test_a_comparison_survives_kills_and_only_its_times_differ(ray, tmp_path):
    given = ["compare", "world", "-m", "base,vcd,reweigh", "--data", tmp_path / "pictures"]
    given += ["--option", "scenes=12", "--model-option", "device=cpu"]
    finish(reweigh(*given, "-o", tmp_path / "alone"))
    out = tmp_path / "out"
    kept, _ = survive(given, out, lambda: lines(out / "world" / "base" / "rows.jsonl"), seed=5)
    assert 2 <= kept < 12
    assert untimed(out) == untimed(tmp_path / "alone")


def untimed(folder):
    """What a comparison says without its clock: answers and scores, figures, and the tokens of each batch."""
    rows = {
        str(path.relative_to(folder)): [
            {**row, "note": row.get("note", {}).get("tokens")}
            for row in map(json.loads, path.read_text("utf-8").splitlines())
        ]
        for path in folder.rglob("rows.jsonl")
    }
    items = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("items.jsonl")}
    frame = json.loads((folder / "frame.json").read_text())
    figures = [row for row in frame["rows"] if row["benchmark"] is not None]
    assert len(rows) == len(items) == 3
    return rows, items, figures, frame["about"]


def work_through(folder, workers, tasks):
    """A driver whose workers sleep, see ``ray_driver``."""
    folder.mkdir()
    return start(Path(__file__).parent / "ray_driver.py", folder, workers, json.dumps(tasks))


def results(said):
    return [tuple(map(int, line.split()[1:])) for line in said.splitlines() if line.startswith("result")]


@on_ray
@pytest.mark.slow
def test_workers_killed_at_random_moments_lose_no_task(ray, tmp_path):
    tasks = [[0.3]] * 20
    driver = work_through(tmp_path / "notes", 2, tasks)
    dice = random.Random(3)
    for wanted in (1, 5, 9):  # three kills: no task can fail the four times that end the work
        returned = until(lambda n=wanted: len(list((tmp_path / "notes").glob("*.returned"))) >= n, driver)
        assert returned, driver.communicate()[0]
        kill_worker(driver, dice)
    assert sorted(results(finish(driver))) == [(number, number * number) for number in range(len(tasks))]


class Ref:
    """What Ray gives for a call; ``value`` is None until the actor is there."""

    def __init__(self, value):
        self.value = value


class FakeActor:
    """An actor that describes itself with a page, or fails to start, and squares its tasks."""

    def __init__(self, page, log):
        self.describe = SimpleNamespace(remote=lambda: Ref(page))
        self.work = SimpleNamespace(options=lambda **given: SimpleNamespace(remote=self._work))
        self.log = log

    def _work(self, task, described):
        self.log.append(task)
        return Ref(task if isinstance(task, Exception) else task * task)


class FakeRay:
    """Ray with actors that find these pages, in their order; calls return in the order they were made."""

    def __init__(self, *pages, resources=None):
        self.pages, self.log, self.options_given = iter(pages), [], None
        self.resources = resources or {"CPU": 64.0, "GPU": 8.0}

    def remote(self, kind):
        return SimpleNamespace(options=self.options)

    def options(self, **given):
        self.options_given = given
        return SimpleNamespace(
            remote=lambda open_worker, arguments, folder: FakeActor(next(self.pages), self.log)
        )

    def cluster_resources(self):
        return self.resources

    def put(self, value):
        return value

    def wait(self, refs, num_returns, timeout):
        assert refs, "nobody works"
        there = [ref for ref in refs if ref.value is not None][:num_returns]
        return there, [ref for ref in refs if ref not in there]

    def get(self, ref):
        if isinstance(ref.value, Exception) and not isinstance(ref.value, ReweighError):
            raise ref.value
        return ref.value


def test_each_actor_declares_what_it_takes():
    ray = FakeRay({"a": 1})
    pool = Pool(ray, Cluster(gpus=2, cpus=4, workers=1), dict, {})
    assert ray.options_given == {"num_cpus": 4, "num_gpus": 2, "max_restarts": -1, "max_task_retries": 3}
    assert pool.described == {"a": 1}


def test_every_task_is_returned_once():
    pool = Pool(FakeRay(*[{"a": 1}] * 4), Cluster(gpus=2), dict, {})
    assert sorted(pool.unordered(enumerate(range(10)))) == [(n, n * n) for n in range(10)]
    assert list(pool.unordered([])) == []


def test_work_starts_with_the_first_worker_that_finds_room():
    """Others of a busy cluster may come later or never; one that cannot be started is left out."""
    ray = FakeRay(None, RuntimeError("no module named reweigh"), {"a": 1}, {"a": 1})
    pool = Pool(ray, Cluster(gpus=2), dict, {})
    assert pool.described == {"a": 1}
    assert sorted(pool.unordered([(7, 2), (8, 3)])) == [(7, 4), (8, 9)]


def test_tasks_are_made_when_they_are_handed_out():
    made = []
    pool = Pool(FakeRay({"a": 1}, {"a": 1}), Cluster(gpus=4), dict, {})
    results = pool.unordered((number, made.append(number) or number) for number in range(9))
    next(results)
    assert len(made) <= 3
    assert len(list(results)) == 8


def test_a_late_or_restarted_worker_that_differs_refuses_its_task():
    actor = Actor(lambda: ({"a": 2}, lambda task: task), {}, ".")
    assert actor.work(3, {"a": 2}) == 3
    restarted = Actor(lambda: ({"a": 3}, lambda task: task), {}, ".")
    assert "2 and 3" in restarted.work(3, {"a": 2}).message


def test_a_relative_path_means_the_same_to_an_actor(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "vectors").touch()
    given = {"path": "vectors"}
    there = Actor(lambda path: ({"found": Path(path).exists()}, print), given, str(tmp_path / "driver"))
    assert there.describe() == {"found": True}
    monkeypatch.chdir(tmp_path)
    elsewhere = Actor(lambda path: ({"found": Path(path).exists()}, print), given, str(tmp_path / "gone"))
    assert elsewhere.describe() == {"found": False}


def test_work_that_is_left_midway_loses_no_actor():
    pool, made = Pool(FakeRay({"a": 1}, {"a": 1}), Cluster(gpus=4), dict, {}), []
    left = pool.unordered(enumerate(range(9)))
    next(left)
    left.close()
    next(pool.unordered((number, made.append(number) or number) for number in range(9)))
    assert len(made) == 2
    with pytest.raises(ReweighError, match="task 0 failed"):
        list(pool.unordered([(0, RuntimeError("killed")), (1, 1)]))
    assert sorted(pool.unordered(enumerate(range(3)))) == [(n, n * n) for n in range(3)]


def test_refusals_and_failures_end_the_work():
    pool = Pool(FakeRay({"a": 1}), Cluster(gpus=8), dict, {})
    with pytest.raises(ReweighError, match="wrong layer"):
        list(pool.unordered([(0, ReweighError("wrong layer"))]))
    with pytest.raises(ReweighError, match="task 5 failed"):
        list(pool.unordered([(5, RuntimeError("killed"))]))


def test_workers_that_cannot_be_started_are_an_error_with_its_reason():
    ray = FakeRay(*[RuntimeError("no module named reweigh")] * 2)
    with pytest.raises(ReweighError, match="no module named reweigh"):
        Pool(ray, Cluster(gpus=4), dict, {})


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray") as caught, ray_pool(Cluster(), dict, {}):
        pass
    assert "[ray]" in str(caught.value)


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
    with pytest.raises(InputError, match="GPU"):
        Cluster(gpus=1).size({"CPU": 4.0})
    with pytest.raises(InputError, match="0 workers"):
        Cluster(workers=0)
