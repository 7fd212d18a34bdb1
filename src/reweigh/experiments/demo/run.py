"""Run the demonstration: calibrate, describe evaluation scenes twice, count, and pick what is worth showing."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.bootstrap import paired_difference
from reweigh.benchmarks.chair.metrics import figures, summarise_metrics
from reweigh.benchmarks.world import MAX_NEW_TOKENS, score_scene
from reweigh.calibration.calibrate import calibrate
from reweigh.decoding import ReweighSession, attach
from reweigh.engines.transformers.session import Session
from reweigh.estimate import Estimate
from reweigh.families.load import load
from reweigh.progress import bar
from reweigh.rivals import decoder
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE
from reweigh.world import operating_point, path, table_path
from reweigh.world.scenes import Scene, scenes

CALIBRATION = 500
BATCH = 50
SHOWN = ("chair_s", "chair_i", "chair_i_distinct", "recall", "f1", "length", "mentions")


@dataclass(frozen=True)
class Described:
    """What one way of decoding wrote, and what it scored."""

    texts: list[str]
    items: list[Item]
    metrics: dict[str, Estimate]

    def to_json(self) -> dict[str, float | int | None]:
        """The figures by name, and the number of scenes."""
        return {**{name: self.metrics[name].value for name in SHOWN}, "n": len(self.items)}


@dataclass(frozen=True)
class Outcome:
    """The demonstration's result; both sessions can still trace and describe."""

    scenes: list[Scene]
    base: Described
    reweigh: Described
    difference: dict[str, Estimate]
    plain: Session
    session: ReweighSession
    seconds: dict[str, float]

    def took(self) -> str:
        """How long it took, in all and by part."""
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
) -> Outcome:
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
    chosen = list(scenes("evaluation", count, seed))
    plain = decoder("base", model, processor)
    base = _describe(plain, chosen, "base", show)
    clock.mark("base")
    edited = _describe(session, chosen, "ReWEIGH", show)
    clock.mark("ReWEIGH")
    difference = paired_difference(base.items, edited.items, figures)
    return Outcome(chosen, base, edited, difference, plain, session, clock.seconds)


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


def _describe(session: Session, chosen: Sequence[Scene], what: str, show: bool | None) -> Described:
    texts: list[str] = []
    with bar(f"describing ({what})", total=len(chosen), unit="scene", show=show) as progress:
        for batch in _batches(chosen):
            pictures = [scene.image() for scene in batch]
            texts += session.describe(pictures, DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
            progress.update(len(batch))
    items = [score_scene(scene, text) for scene, text in zip(chosen, texts, strict=True)]
    return Described(texts, items, summarise_metrics(items))


def _batches(chosen: Sequence[Scene]) -> Iterator[Sequence[Scene]]:
    for start in range(0, len(chosen), BATCH):
        yield chosen[start : start + BATCH]


class _Clock:
    """Seconds between marks."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def mark(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now
