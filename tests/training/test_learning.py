"""A run that is killed goes on from its checkpoint and logs the same losses as one that was never stopped."""

from __future__ import annotations

import itertools
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from reweigh.errors import ArtifactError
from reweigh.files.artifacts import read_jsonl
from tools.training.learning import LOG, Plan, done, learn, rate_at, weights

PLAN = Plan("line", steps=40, rate=0.05, warmup=4, every=5, log=1)

SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_learning import PLAN, {lesson}
from tools.training.learning import learn
if __name__ == "__main__":
    learn(Path(sys.argv[1]), PLAN, {lesson}, workers=2)
"""


class Line:
    """Fits y = 3x."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.module = torch.nn.Linear(2, 1)

    def loss(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, dict[str, float]]:
        x = torch.randn(8, 2, generator=torch.Generator().manual_seed(step * world + rank))
        loss = ((self.module(x) - 3 * x[:, :1]) ** 2).mean()
        return loss, {"half": float(loss.detach()) / 2}


def losses(folder: Path) -> list[tuple[int, Any]]:
    return [(row["step"], row["loss"]) for row in read_jsonl(folder / LOG)]


class Fragile(Line):
    """Breaks at a step, as a machine does."""

    breaks_at = 22

    def loss(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, dict[str, float]]:
        if step == self.breaks_at:
            raise InterruptedError(step)
        return super().loss(step, rank, world)


class Halting(Line):
    """Goes on to a step and no further while its command lives, so that a kill comes before its end."""

    halts_at = 17

    def __init__(self) -> None:
        super().__init__()
        self.parent = os.getppid()

    def loss(self, step: int, rank: int, world: int) -> tuple[torch.Tensor, dict[str, float]]:
        while step == self.halts_at and os.getppid() == self.parent:
            time.sleep(0.01)
        return super().loss(step, rank, world)


def assert_same_run(one: Path, other: Path) -> None:
    assert losses(one) == losses(other)
    assert [step for step, _ in losses(one)] == list(range(PLAN.steps))
    for name, value in weights(one, "line").items():
        assert torch.equal(value, weights(other, "line")[name])
    assert losses(one)[-1][1] < losses(one)[0][1] / 2  # it does learn


def test_a_broken_run_resumes_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    learn(tmp_path / "whole", PLAN, Line, workers=1)
    with pytest.raises(InterruptedError):
        learn(tmp_path / "broken", PLAN, Fragile, workers=1)
    assert not done(tmp_path / "broken", PLAN)
    assert losses(tmp_path / "broken")[-1][0] == 21  # beyond the checkpoint at 20
    learn(tmp_path / "broken", PLAN, Line, workers=1)
    assert_same_run(tmp_path / "whole", tmp_path / "broken")


def start(folder: Path, tmp_path: Path, lesson: type[Line] = Line) -> subprocess.Popen[bytes]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(here=str(Path(__file__).parent), lesson=lesson.__name__))
    env = os.environ | {"PYTHONPATH": ":".join(sys.path), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, str(script), str(folder)], env=env, stdout=subprocess.PIPE)


def finish(process: subprocess.Popen[bytes]) -> None:
    process.communicate()
    assert process.returncode == 0


def kill_after(process: subprocess.Popen[bytes], folder: Path, step: int) -> None:
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and process.poll() is None:
        if (folder / LOG).is_file() and any(s >= step for s, _ in losses(folder)):
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()  # ends with the last worker, which notices at its next step that its parent is gone


@pytest.mark.slow
def test_two_workers_killed_from_outside_go_on_too(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    finish(start(whole, tmp_path))
    kill_after(start(broken, tmp_path, Halting), broken, 12)
    assert not done(broken, PLAN)
    finish(start(broken, tmp_path))
    assert_same_run(whole, broken)


def test_weights_of_a_stage_that_never_ran(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="stage"):
        weights(tmp_path, "speak")


def test_rate_warms_up_and_falls_to_its_floor() -> None:
    plan = Plan("x", steps=100, rate=2.0, warmup=10, floor=0.1)
    rates = [rate_at(plan, s) for s in range(101)]
    assert rates[0] == pytest.approx(0.2)
    assert rates[9] == pytest.approx(2.0)
    assert rates[100] == pytest.approx(0.2)
    assert all(a >= b for a, b in itertools.pairwise(rates[10:]))
    half = 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 2))
    assert rates[55] == pytest.approx(2.0 * half)


def test_a_horizon_beyond_the_end_keeps_the_rate_up() -> None:
    short = Plan("x", steps=50, rate=1.0, warmup=0)
    long = Plan("x", steps=50, rate=1.0, warmup=0, horizon=100)
    assert rate_at(long, 50) > 4 * rate_at(short, 50)


def test_a_finished_stage_is_not_run_again(tmp_path: Path) -> None:
    plan = Plan("line", steps=3, rate=0.05, warmup=1, every=1, log=1)
    learn(tmp_path, plan, Line, workers=1)
    before = (tmp_path / "line.safetensors").read_bytes()
    learn(tmp_path, plan, _never, workers=1)
    assert (tmp_path / "line.safetensors").read_bytes() == before


def _never() -> Line:
    raise AssertionError("a finished stage made its lesson again")
