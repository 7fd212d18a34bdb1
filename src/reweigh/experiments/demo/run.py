"""Run the demonstration: calibrate, describe evaluation scenes twice, count, and choose scenes to show."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reweigh.benchmarks.world import MAX_NEW_TOKENS, World
from reweigh.calibration.calibrate import calibrate
from reweigh.decoding import ReweighSession, attach
from reweigh.engines.transformers.session import Session
from reweigh.estimate import Estimate
from reweigh.experiments.experiment import Experiment, frame_of, session_arm
from reweigh.families.load import load
from reweigh.rivals import decoder
from reweigh.runs.task import Runs, Scored, open_task
from reweigh.tables.table import ReferenceTable
from reweigh.world import operating_point, path, table_path
from reweigh.world.scenes import Scene, scenes

CALIBRATION = 500
BATCH = 50
BASE, REWEIGH = "base", "ReWEIGH"
SHOWN = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1", "length", "mentions")


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found; both sessions can still trace and describe."""

    scenes: list[Scene]
    base: Scored
    reweigh: Scored
    difference: dict[str, Estimate]
    plain: Session
    session: ReweighSession
    seconds: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """The figures of both ways of decoding, and how long each part took."""
        both = {"base": self.base.summary, "reweigh": self.reweigh.summary}
        found = {
            name: {**{figure: one.metrics[figure].value for figure in SHOWN}, "n": one.n}
            for name, one in both.items()
        }
        return {**found, "seconds": {name: round(one, 1) for name, one in self.seconds.items()}}

    def took(self) -> str:
        """How long it took, in total and by part."""
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        return f"took {sum(self.seconds.values()):.0f} s ({parts})"

    def improved(self, count: int = 3) -> list[int]:
        """Scenes in which the edit removed hallucinated objects and lost no true one, the clearest first."""
        gains = [(self._gain(number), -number) for number in range(len(self.scenes))]
        return [-number for gain, number in sorted(gains, reverse=True)[:count] if gain > 0]

    def harmed(self, count: int = 1) -> list[int]:
        """Scenes in which the edit introduced hallucinated objects, the worst first: the report must show these too."""
        gains = [(self._gain(number), number) for number in range(len(self.scenes))]
        return [number for gain, number in sorted(gains)[:count] if gain < 0]

    def _gain(self, number: int) -> float:
        before, after = self.base.items[number].counts, self.reweigh.items[number].counts
        fewer = before["hallucinated_objects"] - after["hallucinated_objects"]
        return fewer + 0.5 * min(after["recovered"] - before["recovered"], 1)


def run(
    *,
    count: int = 500,
    seed: int = 0,
    quick: bool = False,
    beta: float | None = None,
    layer: int | None = None,
    calibration: int = CALIBRATION,
    show: bool | None = None,
) -> Demonstration:
    """Describe ``count`` evaluation scenes with and without ReWEIGH.

    Args:
        seed: Which series of evaluation scenes.
        quick: Use the shipped reference table instead of calibrating.
    """
    point = operating_point()
    block = point["layer"] if layer is None else layer
    clock = _Clock()
    model, processor = load(path(), device="cpu")
    clock.mark("loading")
    table = _table(model, processor, block, calibration, quick, show)
    session = attach(model, processor, table=table, beta=point["beta"] if beta is None else beta)
    clock.mark("reference table")
    plain = decoder("base", model, processor)
    with TemporaryDirectory(prefix="reweigh-demo-") as scratch:
        task = open_task("world", Path(scratch, "scenes"), options={"scenes": count, "scene_seed": seed})
        arms = [session_arm(BASE, lambda: plain), session_arm(REWEIGH, lambda: session)]
        runs = Runs(task, {"id": "world"}, BATCH)
        made = Experiment(runs, arms, Path(scratch, "runs"), what="describing", show=show)
        with made.progress(len(arms)):
            for arm in arms:
                made.answer(arm)
                made.score(arm)
                clock.mark(arm.name)
    changes = frame_of(made.scored, task, BASE).against(BASE)
    return Demonstration(
        World(scenes=count, scene_seed=seed).scenes(),
        made.scored[BASE],
        made.scored[REWEIGH],
        {str(row["figure"]): row.estimate for row in changes},
        plain,
        session,
        clock.seconds,
    )


def _table(
    model: Any, processor: Any, layer: int, count: int, quick: bool, show: bool | None
) -> ReferenceTable:
    if quick:
        return ReferenceTable.load(table_path(), layer=layer)
    pictures = [(scene.id, scene.image()) for scene in scenes("calibration", count)]
    found = calibrate(
        model, processor, pictures, layers=[layer], batch_size=BATCH, max_new_tokens=MAX_NEW_TOKENS, show=show
    )
    return next(iter(found.tables.values()))


class _Clock:
    """Seconds between marks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
