"""The demonstration: calibrate, describe evaluation scenes twice, score, and show where the edit helped and hurt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from reweigh.attached import Attached, attach
from reweigh.calibration.calibrate import calibrate
from reweigh.engines.session import Session
from reweigh.families.load import load
from reweigh.lab.arms.steps import evidence_maps, whole_candidates
from reweigh.lab.estimate import Estimate
from reweigh.lab.frame import Frame
from reweigh.lab.runs.results import Scored
from reweigh.lab.runs.task import Runs, open_task
from reweigh.lab.study import Arm, Study
from reweigh.lab.tasks.world import MAX_NEW_TOKENS, World
from reweigh.lab.views.charts import inline
from reweigh.lab.views.examples import highest, response
from reweigh.lab.views.html import Html, legend, part, picture
from reweigh.lab.views.mechanism import HEIGHT, draw_step, heat_scale, step_alt_text
from reweigh.lab.views.page import Page
from reweigh.lab.views.table import Cell, Column, Table
from reweigh.method.trace import Step
from reweigh.rivals import decoder
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE
from reweigh.world import operating_point, path, table_path
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import Scene, scenes
from reweigh.world.vocabulary import surfaces

CALIBRATION = 500
BATCH = 50
BASE, REWEIGH = "base", "ReWEIGH"
COLUMNS = {
    "chair_s": Column("CHAIR_S", "lower"),
    "chair_i": Column("CHAIR_I", "lower"),
    "chair_i_distinct": Column("distinct CHAIR_I", "lower"),
    "recall": Column("Recall", "higher"),
    "f1": Column("F1", "higher"),
    "length": Column("Words"),
    "mentions": Column("Mentions"),
}
PICTURE = 336


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration found; both sessions can still trace and describe."""

    scenes: list[Scene]
    scored: Mapping[str, Scored]
    frame: Frame
    plain: Session
    session: Attached
    seconds: Mapping[str, float]

    def number(self, arm: str, name: str) -> Estimate:
        """Return a figure of the base or of ReWEIGH."""
        return self.frame.one(arm=arm, figure=name, against=None)

    def change(self, name: str) -> Estimate:
        """Return the paired difference of ReWEIGH to the base."""
        return self.frame.one(arm=REWEIGH, figure=name, against=BASE)

    def relative_change(self) -> str:
        """Return by how much CHAIR_I changed, as a share of the base's."""
        before, change = self.number(BASE, "chair_i").value, self.change("chair_i").value
        return f"{100 * change / before:+.1f}%" if before and change is not None else "n/a"

    def to_json(self) -> dict[str, Any]:
        """Return the figures of both ways of decoding, and how long each part took."""
        found: dict[str, Any] = {
            arm.lower(): {
                **{name: self.number(arm, name).value for name in COLUMNS},
                "n": self.scored[arm].summary.n,
            }
            for arm in (BASE, REWEIGH)
        }
        return {**found, "seconds": {name: round(one, 1) for name, one in self.seconds.items()}}

    def took(self) -> str:
        """Return how long it took, in total and by part."""
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.seconds.items())
        return f"took {sum(self.seconds.values()):.0f} s ({parts})"

    def improved(self, count: int = 3) -> list[int]:
        """Return scenes in which the edit removed hallucinated objects or found further true ones, the clearest first."""
        return highest(self._gains())[:count]

    def harmed(self, count: int = 1) -> list[int]:
        """Return scenes in which the edit introduced hallucinated objects: the report must show these too."""
        return highest({number: -gain for number, gain in self._gains().items()})[:count]

    def _gains(self) -> dict[int, float]:
        gains = {}
        pairs = zip(*(self.scored[arm].items for arm in (BASE, REWEIGH)), strict=True)
        for number, (before, after) in enumerate(pairs):
            fewer = before.counts["hallucinated_objects"] - after.counts["hallucinated_objects"]
            gains[number] = fewer + 0.5 * min(after.counts["recovered"] - before.counts["recovered"], 1)
        return gains


def run(*, count: int, quick: bool) -> Demonstration:
    """Describe evaluation scenes with and without ReWEIGH; ``quick`` uses the shipped table instead of calibrating."""
    point = operating_point()
    seconds: dict[str, float] = {}
    last = time.perf_counter()

    def mark(name: str) -> None:
        nonlocal last
        seconds[name], last = time.perf_counter() - last, time.perf_counter()

    model, processor = load(path(), device="cpu")
    mark("loading")
    table = shipped_table() if quick else calibrated_table(model, processor)
    session = attach(model, processor, table=table, beta=point["beta"])
    mark("reference table")
    plain = decoder("base", model, processor)
    with TemporaryDirectory(prefix="reweigh-demo-") as scratch:
        task = open_task("world", Path(scratch, "scenes"), options={"scenes": count, "scene_seed": 0})
        runs = Runs(task, {"id": "world"}, BATCH)
        arms = [Arm(BASE, lambda _: plain), Arm(REWEIGH, lambda _: session)]
        study = Study([runs], arms, Path(scratch, "runs"), reference=BASE, what="describing")
        with study.progress(len(arms)):
            for arm in arms:
                study.answer(runs, [arm])
                study.score(runs, arm)
                mark(arm.name)
    shown = World(scenes=count, scene_seed=0).scenes()
    return Demonstration(shown, study.scored[task.name], study.frame(), plain, session, seconds)


def shipped_table() -> ReferenceTable:
    """Return the table that comes with the package."""
    return ReferenceTable.from_pretrained(table_path(), layer=operating_point()["layer"])


def calibrated_table(model: Any, processor: Any) -> ReferenceTable:
    """Calibrate on drawn scenes that the evaluation does not use."""
    pictures = [(scene.id, scene.image()) for scene in scenes("calibration", CALIBRATION)]
    options: dict[str, Any] = {"batch_size": BATCH, "max_new_tokens": MAX_NEW_TOKENS}
    found = calibrate(model, processor, pictures, layers=[operating_point()["layer"]], **options)
    return next(iter(found.tables.values()))


def figures_table(outcome: Demonstration) -> Table:
    """Return base, ReWEIGH and their paired difference, each with its 95% interval."""
    rows: list[list[Cell]] = [
        [arm, *(outcome.number(arm, name) for name in COLUMNS)] for arm in (BASE, REWEIGH)
    ]
    rows.append(["difference", *map(outcome.change, COLUMNS)])
    return Table([Column("decoding"), *COLUMNS.values()], rows, changes={2})


@dataclass(frozen=True)
class Case:
    """One scene, and a step at which the edit changed a word of its description, an object if possible."""

    scene: Scene
    step: Step | None
    words: Mapping[int, str]
    """Whole words that begin with the candidates of the step."""


def trace_case(outcome: Demonstration, number: int) -> Case:
    """Describe one scene again, traced."""
    session, scene = outcome.session, outcome.scenes[number]
    with session.using(trace=True) as run:
        session.describe(scene.image(), DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
    changed = [step for step in run.trace.steps() if step.changed]
    objects = object_tokens(session.processor.tokenizer)
    # objects as both winners first, then as one of them
    step = max(changed, key=lambda one: len({one.winner_before, one.winner_after} & objects), default=None)
    if step is None:
        return Case(scene, None, {})
    inputs = session.prepare([scene.image()], [DESCRIBE])
    return Case(scene, step, whole_candidates(session, run.trace, step, inputs))


def object_tokens(tokenizer: Any) -> frozenset[int]:
    """Return the first pieces of the names of the world's objects, as they stand inside a sentence."""
    forms = [f" {form}" for name in CATALOGUE for pair in surfaces(name) for form in pair]
    pieces = tokenizer(forms, add_special_tokens=False)["input_ids"]
    return frozenset(ids[0] for ids in pieces)


def in_words(outcome: Demonstration) -> str:
    """Return what CHAIR_I says here, for readers who have not met it."""
    before, after = (outcome.number(arm, "chair_i").value for arm in (BASE, REWEIGH))
    if before is None or after is None:
        return "No object was named, so there is nothing to score."
    return (
        f"{before:.0f} of 100 named objects were not there, now {after:.0f}: this share is called CHAIR_I. "
        "Only objects are scored; colors, counts and places are not."
    )


def build_page(outcome: Demonstration, cases: list[Case], harmed: list[Case]) -> Page:
    """Return the metrics, then scenes with both descriptions, the step where they part, and heat maps."""
    session, table = outcome.session, outcome.session.table
    before, after = (outcome.number(arm, "chair_i").value or 0.0 for arm in (BASE, REWEIGH))
    page = Page(
        "ReWEIGH on the embedded model",
        lead="The same small vision-language model describes the same scenes twice: without ReWEIGH, and with it: "
        "candidates that lack their usual visual evidence lose at most β.",
        footer=f"Made by `reweigh demo`; model {table.about['identity']['architecture']}, "
        f"table {table.fingerprint[:12]}.",
    )
    tiles = [
        ("CHAIR_I", outcome.relative_change(), f"{before:.2f} to {after:.2f}, hallucinated mentions"),
        ("F1", f"{outcome.change('f1').value or 0.0:+.2f}", "points"),
        ("Scenes", f"{len(outcome.scenes):,}", "never used for any choice"),
        ("Operating point", f"layer {session.layer}, β {session.beta:g}", f"{len(table):,} references"),
    ]
    page.text(in_words(outcome)).add(part("tiles", tiles))
    page.section("Figures").table(figures_table(outcome)).text(
        f"Brackets are 95% image-bootstrap intervals; the difference is paired by scene. It {outcome.took()}.",
        muted=True,
    )
    for title, chosen in (("What changed", cases), ("Where it hurt", harmed)):
        if chosen:
            page.section(title).add(legend(), *[_card(outcome, case) for case in chosen])
    return page


def _card(outcome: Demonstration, case: Case) -> Html:
    """Return a scene with both descriptions, the changed step, and where the evidence for its two words lies."""
    scene, objects = case.scene, ", ".join(sorted(case.scene.objects))
    shown = picture(scene.image(PICTURE), alt=f"Drawn scene with {objects}")
    texts = [response(outcome.scored[arm], scene.id, title=arm) for arm in (BASE, REWEIGH)]
    drawing, words, maps = None, "", []
    if (step := case.step) is not None:
        rows = step.plot_rows(case.words)
        drawing = inline(partial(draw_step, rows=rows), alt=step_alt_text(rows), height=HEIGHT)
        words = (
            f"Step {step.index}, at which the edit changed the word: “{case.words[step.winner_before]}” was suppressed, "
            f"“{case.words[step.winner_after]}” emitted."
        )
        maps = _maps(outcome.session, scene, step, case.words)
    return part("scene", f"Scene {scene.index}", shown, f"In it: {objects}", texts, drawing, words, maps)


def _maps(session: Attached, scene: Scene, step: Step, words: Mapping[int, str]) -> list[tuple[Html, str]]:
    shown = {step.winner_after: "kept", step.winner_before: "suppressed"}
    inputs = session.prepare([scene.image()], [DESCRIBE])
    maps, high = evidence_maps(session.model, inputs, session.layer, list(shown), scene.image(PICTURE))
    figures = []
    for (token, what), painted in zip(shown.items(), maps, strict=True):
        described = f"The scene under a heat map of the evidence for “{words[token]}”; warm colors mark it"
        drawn = picture(painted, alt=described) + heat_scale(0.0, high)
        figures.append((drawn, f"Evidence for {what} “{words[token]}”; both maps have one scale."))
    return figures
