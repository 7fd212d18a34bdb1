"""Cases: answers chosen by stated rules, side by side, and one decoding step drawn as the paper draws it.

The rules, each with ties by image id: the largest net removal of hallucinated occurrences; the largest removal beyond that
of the matched-probability arm; among the degenerate answers of the unbounded arm (they repeat an object more often than any
base answer) the largest repetition; among the answers of the global-reference arm the most hallucinated classes that neither
the base nor the method names. The step drawn is the first that the edit changes, of the first image by net removal at which
that step is the onset of a hallucinated mention.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.benchmarks.base import read_responses
from reweigh.benchmarks.types import Id, Item
from reweigh.engines.transformers.measure import measure
from reweigh.errors import InputError
from reweigh.experiments.ablate.arms import UNBOUNDED, global_reference
from reweigh.families.prompts import build_inputs
from reweigh.files.artifacts import write_json, write_text
from reweigh.images import read_image
from reweigh.paper.analyses.choosing import Choice, degenerate, net_removal, new_classes, ordered
from reweigh.paper.analyses.mechanism import first_changed_step, step_rows
from reweigh.paper.analyses.roles import piece_text
from reweigh.paper.corpus.image import StudyImage
from reweigh.paper.studies.drawing import draw_mechanism
from reweigh.paper.studies.endtoend import BASE, NO_MODEL, PROBABILITY, RANK, EndToEnd
from reweigh.paper.studies.material import Material
from reweigh.paper.studies.run import FIGURE, FRAGMENT
from reweigh.paper.studies.study import Column, Row, Study, too_few_images
from reweigh.results.examples import coloured_response
from reweigh.results.heat import heatmap
from reweigh.results.html import Html, element, join, legend, picture
from reweigh.results.mechanism import visible
from reweigh.runs.record import RESPONSES, find_image
from reweigh.runs.task import Scored

REMOVAL, OVER, DEGENERATE, MISPLACED = "net removal", "rank over probability", "degenerate", "misallocated"
ORDERS = {
    REMOVAL: "net removal of hallucinated occurrences by ReWEIGH",
    OVER: "net removal by ReWEIGH minus that by the matched-probability arm",
    DEGENERATE: "repetition of one object in degenerate answers of the unbounded arm",
    MISPLACED: "hallucinated classes of the global-reference arm that neither base nor ReWEIGH names",
}
"""What each order is by; higher first, ties by image id."""
ARMS = {DEGENERATE: "unbounded", MISPLACED: "global"}
TITLES = {BASE: "base", PROBABILITY: "matched probability", RANK: "ReWEIGH"}
SHOWN = 5
TEXTS = "cases.json"
SIDE = 336


@dataclass(frozen=True)
class _Runs:
    """The runs that cases are chosen from, and their texts."""

    scored: Mapping[str, Scored]
    texts: Mapping[str, Mapping[Id, str]]

    def items(self, name: str) -> list[Item]:
        return self.scored[name].items

    def item(self, name: str, image: Id) -> Item:
        return next(item for item in self.items(name) if item.id == image)


class Cases(Study):
    """Answers side by side and one step drawn, chosen by stated rules."""

    name = "cases"
    title = "Cases"
    reproduces = (
        "Tab. and Fig. mechanism-case, Fig. rank-probability-case, Fig. chair-examples-1, Fig. failure-modes"
    )
    draws = False  # the figure needs pictures and the model: ``extras`` draws it
    columns = (
        Column("case", "text", "the rule"),
        Column("order", "text", "what it orders by; higher first, ties by image id"),
        Column("place", "integer", "place in that order"),
        Column("image", "text", "the image"),
        Column("score", "integer", "its number in that order"),
    )

    def unmet(self, material: Material) -> str | None:
        if (reason := too_few_images(material)) is not None:
            return reason
        return NO_MODEL if material.rerun is None else None

    def rows(self, material: Material) -> list[Row]:
        runs = _read_runs(material)
        return [
            {
                "case": case,
                "order": ORDERS[case],
                "place": place,
                "image": choice.image,
                "score": choice.score,
            }
            for case, choices in _choose(runs).items()
            for place, choice in enumerate(choices[:SHOWN], start=1)
        ]

    def sentences(self, rows: Sequence[Row], material: Material) -> list[str]:
        found = []
        for case, order in ORDERS.items():
            first = next((row for row in rows if row["case"] == case), None)
            found.append(
                f"{case}: none, by {order}"
                if first is None
                else f"{case}: image {first['image']}, {first['score']} by {order}"
            )
        return [
            "First in each order: " + "; ".join(found) + ".",
            "Cases illustrate; the other studies measure.",
        ]

    def extras(self, rows: Sequence[Row], material: Material, folder: Path) -> list[str]:
        runs = _read_runs(material)
        chosen = {case: choices[0].image for case, choices in _choose(runs).items() if choices}
        step = _choose_step(material, [one.image for one in _choose(runs)[REMOVAL]])
        page: dict[str, Any] = {"cases": {case: _page(runs, case, image) for case, image in chosen.items()}}
        files = [FRAGMENT, TEXTS]
        drawn = Html("")
        if step is not None:
            page["step"], drawn = _draw_step(material, *step, folder)
            files += [f"{FIGURE}.png", f"{FIGURE}.svg"]
        cards = [_card(material, runs, case, image) for case, image in chosen.items()]
        write_text(folder / FRAGMENT, join([drawn, legend(), *cards]))
        write_json(folder / TEXTS, page)
        return files


def _read_runs(material: Material) -> _Runs:
    ends = EndToEnd.of(material)
    scored = {BASE: ends.base(), PROBABILITY: ends.probability(), RANK: ends.rank()}
    scored["unbounded"] = ends.run("unbounded", material.table, clip=UNBOUNDED)
    scored["global"] = ends.run("global", global_reference(material.table))
    texts = {
        name: {row.id: row.text for row in read_responses(ends.rerun.folder / name / RESPONSES)}
        for name in scored
    }
    return _Runs(scored, texts)


def _choose(runs: _Runs) -> dict[str, list[Choice]]:
    base, rank, probability = (runs.items(name) for name in (BASE, RANK, PROBABILITY))
    removed, other = net_removal(base, rank), net_removal(base, probability)
    return {
        REMOVAL: ordered(removed),
        OVER: ordered({image: removed[image] - other[image] for image in removed}),
        DEGENERATE: ordered(degenerate(base, runs.items("unbounded"))),
        MISPLACED: ordered(new_classes(runs.items("global"), base, rank)),
    }


def _choose_step(material: Material, order: Sequence[Id]) -> tuple[StudyImage, int] | None:
    """The first image of an order whose first changed step is the onset of a hallucinated mention."""
    references = material.table.over(material.evaluation.vocab_size)
    rank = {image: number for number, image in enumerate(order)}
    best: tuple[int, StudyImage, int] | None = None
    for image in material.evaluation:
        if image.id not in rank or (best is not None and rank[image.id] > best[0]):
            continue
        step = first_changed_step(image, references, material.table.scale, material.beta)
        if step is not None and any(one.hallucinated and one.onset == step for one in image.mentions):
            best = rank[image.id], image, step
    return None if best is None else best[1:]


def _draw_step(material: Material, image: StudyImage, step: int, folder: Path) -> tuple[dict[str, Any], Html]:
    """Draw the step beside the picture with the evidence of both winners; what was drawn, and a caption for the page."""
    pieces = material.evaluation.pieces()["pieces"]
    by_bytes = any(piece is not None and piece.startswith("Ġ") for piece in pieces)
    texts = [visible(piece_text(piece or "", by_bytes=by_bytes)) for piece in pieces]
    rows = step_rows(
        image,
        step,
        material.table.over(material.evaluation.vocab_size),
        material.table.scale,
        material.beta,
        texts,
    )
    loser, gainer = (next(row for row in rows if row[key]) for key in ("before_winner", "after_winner"))
    shown = _picture(material, image.id)
    painted = _painted(material, shown, [loser["id"], gainer["id"]])
    draw_mechanism(rows, shown, painted, [loser["token"], gainer["token"]], folder / FIGURE)
    words = (
        f"Step {step} of image {image.id}: the edit takes the lead from “{loser['token']}”, a hallucinated mention, and "
        f"gives it to “{gainer['token']}”. Filled: logits before; open: after; arrows are beta·s long. The maps show where "
        "the picture's positions rank each word high."
    )
    about = {
        "image": image.id,
        "step": step,
        "beta": material.beta,
        "b0": material.table.scale,
        "candidates": rows,
    }
    return about, element("p", words)


def _picture(material: Material, image: Id) -> Any:
    if material.rerun is None:
        raise InputError("pictures are found through the records, and no model is at hand")
    task = material.rerun.runs.task
    record = next(record for record in task.records if record.id == image)
    return read_image(find_image(task.images, record.image))


def _painted(material: Material, shown: Any, tokens: Sequence[int]) -> list[bytes]:
    """The evidence of some tokens painted on the picture; nothing for a family whose positions have no grid."""
    if material.rerun is None:
        return []
    model, processor = material.rerun.load()
    runs = material.rerun.runs
    inputs = build_inputs(model, processor, [shown], [runs.task.records[0].prompt], template=runs.template)
    [found] = measure(model, inputs, [material.table.layer], locate=list(tokens))
    if found is None:
        return []
    try:
        grids = [found.grid(material.table.layer, index).numpy() for index in range(len(tokens))]
    except InputError:
        return []
    top = max(float(np.nanmax(grid)) for grid in grids)
    large = shown.convert("RGB").resize((SIDE, SIDE * shown.height // shown.width))
    return [heatmap(large, grid, low=0.0, high=top) for grid in grids]


def _page(runs: _Runs, case: str, image: Id) -> dict[str, Any]:
    names = [*TITLES, *([ARMS[case]] if case in ARMS else [])]
    answers = {
        name: {"text": runs.texts[name][image], "mentions": runs.item(name, image).details["mentions"]}
        for name in names
    }
    return {"image": image, "order": ORDERS[case], "answers": answers}


def _card(material: Material, runs: _Runs, case: str, image: Id) -> Html:
    """A case on the page: the picture, and all answers with their mentions in colour."""
    names = {**TITLES, **({ARMS[case]: f"{ARMS[case]} arm"} if case in ARMS else {})}
    answers = [
        element(
            "div", element("h4", title), coloured_response(runs.item(name, image), runs.texts[name][image])
        )
        for name, title in names.items()
    ]
    shown = picture(_picture(material, image), alt=_alt(runs.item(BASE, image)), max_side=SIDE)
    head = [
        element("h3", f"{case.capitalize()}: image {image}"),
        element("p", f"First by {ORDERS[case]}.", class_="muted"),
    ]
    return element("div", shown, element("div", *head, *answers), class_="card example")


def _alt(item: Item) -> str:
    """The picture in words: what the annotations say is in it."""
    there = item.details.get("reference")
    named = ", ".join(map(str, there)) if isinstance(there, list) and there else "objects that are not listed"
    return f"Image {item.id}, in which there are: {named}"
