"""The demonstration's page: figures, then scenes with both descriptions, the step where they part, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from reweigh.benchmarks.base import Item
from reweigh.benchmarks.world import MAX_NEW_TOKENS, score_scene
from reweigh.engines.transformers.measure import measure
from reweigh.engines.transformers.words import whole_words
from reweigh.experiments.demo.run import Demonstration
from reweigh.families.prompts import build_inputs
from reweigh.method.trace import Step, Trace
from reweigh.results import html
from reweigh.results.charts import inline
from reweigh.results.coloured import html as coloured
from reweigh.results.examples import mention_spans
from reweigh.results.heat import heat_scale, heatmap
from reweigh.results.mechanism import HEIGHT, draw_step, step_alt_text, visible
from reweigh.results.page import Page
from reweigh.results.table import Cell, Column, Table
from reweigh.text import DESCRIBE
from reweigh.world.drawings import CATALOGUE
from reweigh.world.scenes import Scene
from reweigh.world.vocabulary import surfaces

if TYPE_CHECKING:
    from PIL.Image import Image

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
    picture = scene.image()
    base = outcome.plain.describe(picture, DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
    with session.request(trace=True) as request:
        edited = session.describe(picture, DESCRIBE, max_new_tokens=MAX_NEW_TOKENS)
    trace = request.trace
    changed = [step for step in trace.steps() if step.changed]
    objects = object_tokens(session.processor.tokenizer)
    named = [step for step in changed if {step.winner_before, step.winner_after} & objects]
    both = [step for step in named if {step.winner_before, step.winner_after} <= objects]
    changed_step = next(iter([*both, *named, *changed]), None)
    words = {} if changed_step is None else _words(outcome, picture, trace, changed_step)
    return Case(
        scene, score_scene(scene, base), score_scene(scene, edited), base, edited, changed_step, words
    )


def _words(outcome: Demonstration, picture: Image, trace: Trace, step: Step) -> dict[int, str]:
    """The candidates as whole words: the written one as the text has it, the others as the model would continue."""
    session = outcome.session
    said = [trace.step(index).winner_after for index in range(step.index)]
    inputs = session.prepare([picture], [DESCRIBE])
    tokens = [row.token for row in step.candidates]
    found = whole_words(session.model, session.processor, inputs, said, tokens)
    pieces = {row.token: visible(row.text) for row in step.candidates}
    return {**pieces, **found, step.winner_after: trace.word(step.index)}


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


def page(outcome: Demonstration, cases: list[Case], harmed: list[Case]) -> str:
    """The whole page, self-contained."""
    session = outcome.session
    change = outcome.difference["chair_i"].value or 0.0
    before = outcome.base.summary.metrics["chair_i"].value or 0.0
    relative = f"{100 * change / before:+.1f}%" if before else "n/a"
    tiles = html.tiles(
        [
            html.tile("CHAIR_I", relative, f"{before:.2f} to {before + change:.2f}, hallucinated mentions"),
            html.tile("F1", f"{outcome.difference['f1'].value or 0.0:+.2f}", "points"),
            html.tile("Scenes", f"{len(outcome.scenes):,}", "never used for any choice"),
            html.tile(
                "Operating point",
                f"layer {session.layer}, β {session.beta:g}",
                f"{len(session.table):,} references",
            ),
        ]
    )
    made = Page(
        "ReWEIGH on the embedded model",
        lead="The same small vision-language model describes the same scenes twice: as it is, and with candidates that "
        "lack their usual visual evidence held back by at most β.",
        footer=f"Made by `reweigh demo`; model {session.table.made_with['identity']['architecture']}, "
        f"table {session.table.fingerprint[:12]}.",
    )
    note = (
        f"Brackets are 95% image-bootstrap intervals; the difference is paired by scene. It {outcome.took()}."
    )
    made.text(in_words(outcome)).add(tiles)
    made.section("Figures").table(figures_table(outcome)).text(note, muted=True)
    for title, chosen in (("What changed", cases), ("Where it hurt", harmed)):
        if chosen:
            made.section(title).add(html.legend(), *[_case(outcome, case) for case in chosen])
    return made.html()


def _case(outcome: Demonstration, case: Case) -> html.Html:
    picture = html.figure(
        html.picture(
            case.scene.image(PICTURE), alt=f"Drawn scene with {', '.join(sorted(case.scene.objects))}"
        ),
        f"In it: {', '.join(sorted(case.scene.objects))}",
    )
    texts = html.element(
        "div",
        html.element(
            "p",
            html.element("b", "base "),
            coloured(case.base_text, mention_spans(case.base, case.base_text)),
        ),
        html.element(
            "p",
            html.element("b", "ReWEIGH "),
            coloured(case.edited_text, mention_spans(case.edited, case.edited_text)),
        ),
    )
    parts = [
        html.element("h3", f"Scene {case.scene.id}"),
        html.element("div", picture, texts, class_="pair"),
    ]
    if case.changed_step is not None:
        rows = case.changed_step.plot_rows(case.words)
        parts.append(
            html.figure(
                inline(
                    lambda panel, narrow: draw_step(panel, rows, narrow=narrow),
                    alt=step_alt_text(rows),
                    height=HEIGHT,
                ),
                f"Step {case.changed_step.index}, at which the edit changed the word: “{case.suppressed_word}” was "
                f"ahead, “{case.kept_word}” was written.",
            )
        )
        parts.append(html.element("div", *_maps(outcome, case), class_="pair"))
    return html.element("article", *parts, class_="card")


def _maps(outcome: Demonstration, case: Case) -> list[html.Html]:
    """Where the evidence for the kept and for the suppressed token lies."""
    session = outcome.session
    if case.changed_step is None:
        return []
    tokens = [case.changed_step.winner_after, case.changed_step.winner_before]
    inputs = build_inputs(session.model, session.processor, [case.scene.image()], [DESCRIBE])
    evidence = measure(session.model, inputs, layers=[session.layer], locate=tokens)[0]
    if evidence is None or evidence.located is None:
        return []
    figures = []
    high = float(evidence.located.max())
    for index, (word, what) in enumerate(((case.kept_word, "kept"), (case.suppressed_word, "suppressed"))):
        grid = evidence.grid(session.layer, index)
        overlay = heatmap(case.scene.image(PICTURE), grid, low=0.0, high=high)
        described = f"The scene under a heat map of the evidence for “{word}”; warm colours mark it"
        drawn = html.join([html.picture(overlay, alt=described), heat_scale(0.0, high)])
        figures.append(html.figure(drawn, f"Evidence for {what} “{word}”; both maps have one scale."))
    return figures
