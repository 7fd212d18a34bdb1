"""The schedule that made the shipped weights: stages, lengths, seeds. ``train`` runs it, from wherever it stopped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from reweigh.errors import UnknownNameError
from tools.training.conversations import Mix
from tools.training.learning import Lesson, Plan, learn, weights
from tools.training.model import SHIPPED, Shape
from tools.training.stages import Lens, SeeLesson, SpeakLesson

WORKERS = 2
PROCESSOR = "processor"


@dataclass(frozen=True)
class Stage:
    """One stage: its plan, images per worker and step, seed of its scenes, what is said, and where it starts from."""

    plan: Plan
    batch: int
    seed: int
    after: str = ""
    mix: Mix = field(default_factory=Mix)
    lens: Lens = field(default_factory=Lens)


RECIPE: tuple[Stage, ...] = (
    Stage(Plan("see", steps=800, rate=1e-3, warmup=100), batch=32, seed=1),
    Stage(
        Plan(
            "speak",
            steps=1000,
            horizon=2000,
            rate=1.5e-3,
            warmup=100,
            floor=0.03,
            slow="model.vision_tower",
            slow_rate=0.3,
        ),
        batch=8,
        seed=2,
        after="see",
    ),
    Stage(
        Plan(
            "answer", steps=1000, rate=1.3e-3, warmup=20, floor=0.03, slow="model.vision_tower", slow_rate=0.3
        ),
        batch=8,
        seed=3,
        after="speak",
        mix=Mix(asked=9, answer_weight=6.0),
    ),
)


def train(
    folder: Path, *, recipe: tuple[Stage, ...] = RECIPE, shape: Shape = SHIPPED, workers: int = WORKERS
) -> None:
    """Run every stage that is not finished yet, and leave the parameters of each in ``folder``.

    The log tells how far each stage is; a run with another number of workers counts as a different run.
    """
    from tools.training.tokenizer import save_processor

    if not (folder / PROCESSOR / "tokenizer.json").is_file():
        save_processor(folder / PROCESSOR)
    for stage in recipe:
        learn(folder, stage.plan, lesson(folder, stage, shape), workers)


def lesson(folder: Path, stage: Stage, shape: Shape) -> Callable[[], Lesson]:
    """How a worker makes the stage's lesson; it must be picklable, to reach another process."""
    if not stage.after:
        return partial(SeeLesson, shape, stage.batch, stage.seed)
    return partial(_speak_lesson, folder, stage, shape)


def _speak_lesson(folder: Path, stage: Stage, shape: Shape) -> SpeakLesson:
    start = handed_on(weights(folder, stage.after))
    return SpeakLesson(shape, folder / PROCESSOR, start, stage.batch, stage.seed, stage.mix, stage.lens)


def handed_on(tensors: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a finished stage under the names of the whole model; the linear reading of patches stays behind."""
    if not any(name.startswith("tower.") for name in tensors):
        return tensors
    return {f"model.vision_{name}": t for name, t in tensors.items() if name.startswith("tower.")}


def record(recipe: tuple[Stage, ...] = RECIPE) -> list[dict[str, Any]]:
    """The schedule as plain data, to be kept beside the weights."""
    return [asdict(stage) for stage in recipe]


def until(stage: str | None) -> tuple[Stage, ...]:
    """The recipe up to and including a stage."""
    names = [s.plan.name for s in RECIPE]
    if stage is None:
        return RECIPE
    if stage not in names:
        raise UnknownNameError("stage", stage, names)
    return RECIPE[: names.index(stage) + 1]


def finish(folder: Path, recipe: tuple[Stage, ...] = RECIPE, shape: Shape = SHIPPED) -> Path:
    """Write the checkpoint of the last stage and a plot of the losses."""
    from tools.training.checkpoint import build, save_checkpoint
    from tools.training.curves import plot_losses

    model = build(shape, folder / PROCESSOR, handed_on(weights(folder, recipe[-1].plan.name)))
    save_checkpoint(model, folder / PROCESSOR, folder / "checkpoint", record(recipe))
    plot_losses(folder, folder / "losses.png")
    return folder / "checkpoint"
