"""Cases: answers chosen by stated rules, side by side, and one decoding step drawn as the paper draws it.

Every answer gets a score by a rule; the highest goes first, ties by image id. The rules: the largest net removal of
hallucinated occurrences; the largest removal beyond that of the matched-probability arm; among the degenerate answers of the
unbounded arm (they repeat an object more often than any base answer) the largest repetition; among the answers of the
global-reference arm the most hallucinated classes that neither the base nor the method names. The step drawn is the first
that the edit changes, of the first image by net removal where that step is the onset of a hallucinated mention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import to_json
from reweigh.files.outputs import write_output
from reweigh.images import read_image
from reweigh.lab.arms.ablate.arms import RANK, UNBOUNDED, Variant, global_reference
from reweigh.lab.arms.steps import evidence_maps
from reweigh.lab.frame import Frame, Key, Row
from reweigh.lab.paper.analyses.allocation import piece_texts
from reweigh.lab.paper.analyses.steps import Field, switches, winner
from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.material import BASE, PROBABILITY, Material
from reweigh.lab.paper.study import FIGURE, FRAGMENT, Filled, Study, row
from reweigh.lab.runs.diff import hallucinated, repetition
from reweigh.lab.runs.record import find_image
from reweigh.lab.runs.results import Scored
from reweigh.lab.tasks.types import Id, Item
from reweigh.lab.views.charts import chart
from reweigh.lab.views.examples import answer, example, highest
from reweigh.lab.views.html import Html, legend, part
from reweigh.lab.views.mechanism import Candidate, draw_step, visible
from reweigh.method.trace import CandidateRow, Step

REMOVAL, OVER, DEGENERATE, MISPLACED = "net removal", "rank over probability", "degenerate", "misallocated"
ORDERS = {
    REMOVAL: "net removal of hallucinated occurrences by ReWEIGH",
    OVER: "net removal by ReWEIGH minus that by the matched-probability arm",
    DEGENERATE: "repetition of one object in degenerate answers of the unbounded arm",
    MISPLACED: "hallucinated classes of the global-reference arm that neither base nor ReWEIGH names",
}
"""The score of each rule."""
ARMS = {DEGENERATE: "unbounded", MISPLACED: "global"}
TITLES = {BASE: "base", PROBABILITY: "matched probability", RANK: "ReWEIGH"}
SHOWN = 5
STEP = "step"
TABULATED = 8
"""Candidates in the table of the drawn step, as in the paper."""
TEXTS = "cases.json"
SIDE = 336
LIMIT = 6
"""Candidates with the highest logits that are drawn."""


def net_removal(base: Sequence[Item], arm: Sequence[Item]) -> dict[Id, int]:
    """Subtract the hallucinated occurrences of the arm's answer from those of the base answer."""
    later = {item.id: hallucinated(item) for item in arm}
    return {item.id: hallucinated(item).total() - later[item.id].total() for item in base}


def degenerate(base: Sequence[Item], arm: Sequence[Item]) -> dict[Id, int]:
    """Count repetitions in the arm's degenerate answers: those that repeat an object more often than any base answer."""
    usual = max((repetition(item) for item in base), default=0)
    return {item.id: count for item in arm if (count := repetition(item)) > usual}


def new_classes(arm: Sequence[Item], *others: Sequence[Item]) -> dict[Id, int]:
    """Count the hallucinated objects of the arm's answer that no other answer to the same image names."""
    known: dict[Id, set[str]] = {}
    for items in others:
        for item in items:
            named = {str(mention["object"]) for mention in item.details.get("mentions", [])}
            known.setdefault(item.id, set()).update(named)
    return {item.id: len(set(hallucinated(item)) - known.get(item.id, set())) for item in arm}


Chosen = tuple[dict[str, Scored], dict[str, dict[Id, int]]]
"""The runs that cases are chosen from, and for each rule the scores of its images, in their order."""


def choose(material: Material) -> Chosen:
    """Answer under every arm, score, and order the answers by each rule."""
    table = material.table
    scored = {
        BASE: material.base(),
        PROBABILITY: material.run(material.arm(PROBABILITY)),
        RANK: material.rank(),
        "unbounded": material.run(Variant("unbounded", table, clip=UNBOUNDED)),
        "global": material.run(Variant("global", global_reference(table))),
    }
    items = {name: run.items for name, run in scored.items()}
    removed, other = (net_removal(items[BASE], items[name]) for name in (RANK, PROBABILITY))
    scores = {
        REMOVAL: removed,
        OVER: {image: removed[image] - other[image] for image in removed},
        DEGENERATE: degenerate(items[BASE], items["unbounded"]),
        MISPLACED: new_classes(items["global"], items[BASE], items[RANK]),
    }
    return scored, {rule: {image: one[image] for image in highest(one)} for rule, one in scores.items()}


def chosen(material: Material) -> Chosen:
    """Choose once for the frame and for the page."""
    return material.once("cases", lambda: choose(material))


class Cases(Study):
    """Answers side by side and one step drawn, chosen by stated rules."""

    name = "cases"
    title = "Cases"
    labels = (
        *("tab:mechanism-case", "fig:mechanism-case", "fig:rank-probability-case"),
        *("fig:chair-examples-1", "fig:failure-modes"),
    )
    files = (FRAGMENT, TEXTS)
    keys = (
        ("case", "the rule"),
        ("order", "its score, which is the value; the highest goes first, ties by image id"),
        ("place", "place in that order"),
        ("image", "the image"),
        ("candidate", "a candidate of the step that is drawn, with its rank by logit before it"),
        ("quantity", "its logit, evidence, reference, ...; empty for a score"),
    )

    def compute(self, material: Material) -> Frame:
        scores = [
            row(score, case=case, order=ORDERS[case], place=place, image=image, candidate=None, quantity=None)
            for case, scores in chosen(material)[1].items()
            for place, (image, score) in enumerate(islice(scores.items(), SHOWN), start=1)
        ]
        return Frame([*scores, *step_rows(material)])

    def entries(self, frame: Frame) -> Iterator[Filled]:
        shown: dict[str, Key] = {}
        for one in frame.pick(case=STEP):
            word = str(one["candidate"]).partition(" ")[2]
            if shown.setdefault(word, one["place"]) != one["place"]:  # another token with the same text
                word = f"{word} ({one['place']})"
            yield Filled(word, str(one["quantity"]), one.estimate, "tab:mechanism-case")

    def sentences(self, frame: Frame, material: Material) -> list[str]:
        firsts = {str(one["case"]): one for one in frame if one["place"] == 1 and one["case"] != STEP}
        found = [
            f"{case}: image {firsts[case]['image']} ({firsts[case].estimate.value:g})"
            if case in firsts
            else f"{case}: none"
            for case in ORDERS
        ]
        return [f"First by each rule: {'; '.join(found)}.", "Cases illustrate; the other studies measure."]

    def extras(self, frame: Frame, material: Material, folder: Path) -> None:
        """Draw the step, and show the cases with their pictures."""
        scored, orders = chosen(material)
        page: dict[str, Any] = {"cases": {}}
        parts = [legend()]
        for case in (case for case, images in orders.items() if images):
            image = next(iter(orders[case]))
            titles = {**TITLES, **({ARMS[case]: f"{ARMS[case]} arm"} if case in ARMS else {})}
            page["cases"][case] = _case(case, image, {name: scored[name] for name in titles})
            sides = [(title, scored[name]) for name, title in titles.items()]
            words = f"First by {ORDERS[case]}."
            file = _picture_file(material, image)
            parts.append(example(image, sides, file, words, title=f"{case.capitalize()}: {image}"))
        step = choose_step(material, list(orders[REMOVAL]))
        if step is not None:
            page["step"], caption = show_step(material, *step, folder)
            parts.insert(0, caption)
        write_output(folder / FRAGMENT, Html().join(parts))
        write_output(folder / TEXTS, to_json(page))


def first_changed_step(image: StudyImage, field: Field, beta: float) -> int | None:
    """Return the first step at which the edit changes the winner; up to there both answers are the same."""
    for step, (ids, logits) in enumerate(image.steps()):
        if switches(ids, logits, beta * field.strengths(ids, field.evidence(image, ids))):
            return step
    return None


def choose_step(material: Material, order: Sequence[Id]) -> tuple[StudyImage, int] | None:
    """Return the first image of an order whose first changed step is the onset of a hallucinated mention."""
    field = Field.of(material.arm(RANK), material.evaluation.vocab_size)
    rank = {image: number for number, image in enumerate(order)}
    best: tuple[int, StudyImage, int] | None = None
    for image in material.evaluation:
        if image.id not in rank or (best is not None and rank[image.id] > best[0]):
            continue
        step = first_changed_step(image, field, material.beta)
        if step is not None and any(one.hallucinated and one.onset == step for one in image.mentions):
            best = rank[image.id], image, step
    return None if best is None else best[1:]


QUANTITIES: dict[str, Callable[[CandidateRow], float | None]] = {
    "z": lambda one: one.logit,
    "DMRR (1e-3)": lambda one: None if one.evidence is None else 1e3 * one.evidence,
    "b (1e-3)": lambda one: None if one.reference is None else 1e3 * one.reference,
    "deficit (1e-3)": lambda one: None if one.deficit is None else 1e3 * one.deficit,
    "s": lambda one: one.strength,
    "beta s": lambda one: one.shift,
    "z after": lambda one: one.edited,
}
"""The columns of the paper's table of one step."""


def step_rows(material: Material) -> Iterator[Row]:
    """Yield what the paper's table has of the drawn step: its candidates with the highest logits."""
    step = choose_step(material, list(chosen(material)[1][REMOVAL]))
    if step is None:
        return
    image, number = step
    texts = [visible(text) for text in piece_texts(material.pieces()[0])]
    field = Field.of(material.arm(RANK), material.evaluation.vocab_size)
    yield from tabulated(recorded_step(image, number, field, material.beta, texts), image.id)


def tabulated(step: Step, image: Id) -> Iterator[Row]:
    """Yield the quantities of a step's candidates with the highest logits."""
    highest_first = sorted(step.candidates, key=lambda one: -one.logit)[:TABULATED]
    for place, one in enumerate(highest_first, start=1):
        keys: dict[str, Key] = {"case": STEP, "order": f"step {step.index}", "place": place, "image": image}
        for quantity, value in QUANTITIES.items():
            yield row(value(one), **keys, candidate=f"{place} {one.text}", quantity=quantity)


def recorded_step(image: StudyImage, number: int, field: Field, beta: float, texts: Sequence[str]) -> Step:
    """Return a step of the base answer as a trace of the edit has it."""
    ids, logits = image.step(number)
    evidence = field.evidence(image, ids)
    strengths = field.strengths(ids, evidence)
    raw, shifts, known = logits.astype(np.float64), beta * strengths, field.registered(ids)
    rows = []
    for i, token in enumerate(ids.tolist()):
        reference = float(field.references[token]) if known[i] else None
        deficit = None if reference is None else max(reference - float(evidence[i]), 0.0)
        rows.append(
            CandidateRow(
                token,
                texts[token],
                float(raw[i]),
                float(evidence[i]),
                reference,
                deficit,
                float(strengths[i]),
                float(shifts[i]),
                float(raw[i] - shifts[i]),
            )
        )
    return Step(number, 0, tuple(rows), winner(ids, raw), winner(ids, raw - shifts))


def show_step(
    material: Material, image: StudyImage, number: int, folder: Path
) -> tuple[dict[str, Any], Html]:
    """Draw a step beside the picture with the evidence of both winners; return what was drawn, and a caption."""
    runs, texts = material.runs, [visible(text) for text in piece_texts(material.pieces()[0])]
    field = Field.of(material.arm(RANK), material.evaluation.vocab_size)
    step = recorded_step(image, number, field, material.beta, texts)
    winners = [step.winner_before, step.winner_after]
    loser, gainer = (texts[token] for token in winners)
    shown = read_image(_picture_file(material, image.id))
    inputs = build_inputs(*material.loaded, [shown], [runs.task.records[0].prompt], template=runs.template)
    large = shown.convert("RGB").resize((SIDE, SIDE * shown.height // shown.width))
    painted, _ = evidence_maps(material.loaded[0], inputs, material.table.layer, winners, large)
    draw_mechanism(step.plot_rows(), shown, painted, [loser, gainer], folder / FIGURE)
    caption = (
        f"Step {number} of image {image.id}: the edit takes the lead from “{loser}”, a hallucinated mention, and gives it "
        f"to “{gainer}”. Filled: logits before; open: after; arrows have length beta·s. The maps show where the picture's "
        "positions rank each word high."
    )
    about = {"image": image.id, "beta": material.beta, "b0": material.table.b0}
    return {**about, **step.to_json()}, part("paragraph", caption)


def draw_mechanism(
    rows: Sequence[Candidate], picture: Any, painted: Sequence[bytes], words: Sequence[str], path: Path
) -> None:
    """Draw the picture, the words' evidence painted on it, and the logits of a step below."""
    from PIL import Image

    pictures = [("the picture", picture)]
    pictures += [
        (f"evidence of “{word}”", Image.open(BytesIO(data)))
        for word, data in zip(words, painted, strict=False)
    ]
    with chart(path, height=5.4, rows=2, columns=3, height_ratios=[1, 1.35]) as panels:
        for panel in panels[0]:
            panel.axis("off")
        for panel, (title, image) in zip(panels[0], pictures, strict=False):
            panel.imshow(image)
            panel.set_title(title, loc="center", fontsize=9)
        grid = panels[1, 0].get_gridspec()
        for panel in panels[1]:
            panel.remove()
        draw_step(panels[0, 0].figure.add_subplot(grid[1, :]), rows, limit=LIMIT)


def _picture_file(material: Material, image: Id) -> Path:
    task = material.runs.task
    return find_image(task.images, next(record.image for record in task.records if record.id == image))


def _case(case: str, image: Id, runs: Mapping[str, Scored]) -> dict[str, Any]:
    answers = {}
    for name, run in runs.items():
        item, text = answer(run, image)
        answers[name] = {"text": text, "mentions": item.details["mentions"]}
    return {"image": image, "order": ORDERS[case], "answers": answers}
