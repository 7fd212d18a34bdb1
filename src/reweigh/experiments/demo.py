"""The demonstration: calibrate, describe evaluation scenes twice, score, and show where the edit helped and hurt."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.world import MAX_NEW_TOKENS, World, score_scene
from reweigh.calibration.calibrate import calibrate
from reweigh.decoding import ReweighSession, attach
from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.observe import whole_words
from reweigh.engines.transformers.session import Session
from reweigh.estimate import Estimate
from reweigh.experiments.experiment import Experiment, frame_of, session_arm
from reweigh.families.load import load
from reweigh.method.trace import Step
from reweigh.results.charts import inline
from reweigh.results.examples import response
from reweigh.results.html import Html, element, figure, join, legend, picture, tiles
from reweigh.results.mechanism import HEIGHT, draw_step, heat_scale, heatmap, step_alt_text, visible
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.rivals import decoder
from reweigh.runs.task import Runs, Scored, open_task
from reweigh.tables.table import ReferenceTable
from reweigh.text import DESCRIBE
from reweigh.world import operating_point, path, table_path
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import Scene, scenes
from reweigh.world.vocabulary import surfaces

if TYPE_CHECKING:
    pass

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
            name: {**{figure: one.metrics[figure].value for figure in COLUMNS}, "n": one.n}
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


def figures_table(outcome: Demonstration) -> Table:
    """Base, ReWEIGH and their paired difference, each with its 95% interval."""
    rows: list[list[Cell]] = [
        ["base", *[outcome.base.summary.metrics[key] for key in COLUMNS]],
        ["ReWEIGH", *[outcome.reweigh.summary.metrics[key] for key in COLUMNS]],
        ["difference", *[outcome.difference[key] for key in COLUMNS]],
    ]
    return Table([Column("decoding"), *COLUMNS.values()], rows, changes={2})


@dataclass(frozen=True)
class Case:
    """One scene described with and without the edit, and a step at which the edit changed a word, an object if possible."""

    scene: Scene
    base: Item
    edited: Item
    base_text: str
    edited_text: str
    changed_step: Step | None
    words: Mapping[int, str] = field(default_factory=dict)

    @property
    def suppressed_word(self) -> str:
        """The whole word that was ahead at the step."""
        return self.words.get(self.changed_step.winner_before, "") if self.changed_step is not None else ""

    @property
    def kept_word(self) -> str:
        """The whole word that was written at the step."""
        return self.words.get(self.changed_step.winner_after, "") if self.changed_step is not None else ""


def trace_case(outcome: Demonstration, number: int) -> Case:
    """Decode one scene again, alone and traced."""
    session, scene = outcome.session, outcome.scenes[number]
    shown = scene.image()
    base = outcome.plain.describe(shown, DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
    with session.request(trace=True) as request:
        edited = session.describe(shown, DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
    trace = request.trace
    changed = [step for step in trace.steps() if step.changed]
    objects = object_tokens(session.processor.tokenizer)
    named = [step for step in changed if {step.winner_before, step.winner_after} & objects]
    both = [step for step in named if {step.winner_before, step.winner_after} <= objects]
    step = next(iter([*both, *named, *changed]), None)
    words: dict[int, str] = {}
    if (
        step is not None
    ):  # whole words: the written one as the text has it, the others as the model would continue
        said = [trace.step(index).winner_after for index in range(step.index)]
        inputs = session.prepare([shown], [DESCRIBE])
        tokens = [row.token for row in step.candidates]
        words = {row.token: visible(row.text) for row in step.candidates}
        words |= whole_words(session.model, session.processor, inputs, said, tokens)
        words[step.winner_after] = trace.word(step.index)
    return Case(scene, score_scene(scene, base), score_scene(scene, edited), base, edited, step, words)


def object_tokens(tokenizer: Any) -> frozenset[int]:
    """First pieces of the names of the world's objects, as they stand inside a sentence."""
    forms = [f" {form}" for name in CATALOGUE for pair in surfaces(name) for form in pair]
    pieces = tokenizer(forms, add_special_tokens=False)["input_ids"]
    return frozenset(ids[0] for ids in pieces)


def in_words(outcome: Demonstration) -> str:
    """What CHAIR_I says here, for readers who have not met it."""
    before, after = (run.summary.metrics["chair_i"].value for run in (outcome.base, outcome.reweigh))
    if before is None or after is None:
        return "No object was named, so there is nothing to score."
    return (
        f"{before:.0f} of 100 named objects were not there, now {after:.0f}: this share is called CHAIR_I. "
        "Only objects are scored; colours, counts and places are not."
    )


def build_page(outcome: Demonstration, cases: list[Case], harmed: list[Case]) -> Page:
    """The metrics, then scenes with both descriptions, the step where they part, and heat maps."""
    session = outcome.session
    change = outcome.difference["chair_i"].value or 0.0
    before = outcome.base.summary.metrics["chair_i"].value or 0.0
    relative = f"{100 * change / before:+.1f}%" if before else "n/a"
    page = Page(
        "ReWEIGH on the embedded model",
        lead="The same small vision-language model describes the same scenes twice: as it is, and with candidates that "
        "lack their usual visual evidence held back by at most β.",
        footer=f"Made by `reweigh demo`; model {session.table.made_with['identity']['architecture']}, "
        f"table {session.table.fingerprint[:12]}.",
    )
    page.text(in_words(outcome)).add(
        tiles(
            ("CHAIR_I", relative, f"{before:.2f} to {before + change:.2f}, hallucinated mentions"),
            ("F1", f"{outcome.difference['f1'].value or 0.0:+.2f}", "points"),
            ("Scenes", f"{len(outcome.scenes):,}", "never used for any choice"),
            (
                "Operating point",
                f"layer {session.layer}, β {session.beta:g}",
                f"{len(session.table):,} references",
            ),
        )
    )
    page.section("Figures").table(figures_table(outcome)).text(
        f"Brackets are 95% image-bootstrap intervals; the difference is paired by scene. It {outcome.took()}.",
        muted=True,
    )
    for title, chosen in (("What changed", cases), ("Where it hurt", harmed)):
        if chosen:
            page.section(title).add(legend(), *[_card(session, case) for case in chosen])
    return page


def _card(session: ReweighSession, case: Case) -> Html:
    """A scene with both descriptions, the changed step, and where the evidence for its two words lies."""
    objects = ", ".join(sorted(case.scene.objects))
    shown = picture(case.scene.image(PICTURE), alt=f"Drawn scene with {objects}")
    texts = [
        response(case.base, case.base_text, title="base"),
        response(case.edited, case.edited_text, title="ReWEIGH"),
    ]
    both = element("div", figure(shown, f"In it: {objects}"), element("div", *texts), class_="pair")
    parts = [element("h3", f"Scene {case.scene.id}"), both]
    if case.changed_step is not None:
        rows = case.changed_step.plot_rows(case.words)

        def draw(panel: Any, narrow: bool) -> None:
            draw_step(panel, rows, narrow=narrow)

        words = (
            f"Step {case.changed_step.index}, at which the edit changed the word: “{case.suppressed_word}” was ahead, "
            f"“{case.kept_word}” was written."
        )
        parts.append(figure(inline(draw, alt=step_alt_text(rows), height=HEIGHT), words))
        parts.append(element("div", *_maps(session, case, case.changed_step), class_="pair"))
    return element("article", *parts, class_="card")


def _maps(session: ReweighSession, case: Case, step: Step) -> list[Html]:
    tokens = [step.winner_after, step.winner_before]
    inputs = session.prepare([case.scene.image()], [DESCRIBE])
    evidence = measure(session.model, inputs, layers=[session.layer], locate=tokens)[0]
    if evidence is None or evidence.located is None:
        return []
    figures = []
    high = float(evidence.located.max())
    for index, (word, what) in enumerate(((case.kept_word, "kept"), (case.suppressed_word, "suppressed"))):
        overlay = heatmap(case.scene.image(PICTURE), evidence.grid(session.layer, index), low=0.0, high=high)
        described = f"The scene under a heat map of the evidence for “{word}”; warm colours mark it"
        drawn = join([picture(overlay, alt=described), heat_scale(0.0, high)])
        figures.append(figure(drawn, f"Evidence for {what} “{word}”; both maps have one scale."))
    return figures
