"""Draw the three steps of the method for docs/method.md, from one scene of the embedded world and the shipped table.

python scripts/method_pictures.py
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

import reweigh
from reweigh.attached import Attached
from reweigh.calibration.result import Calibration
from reweigh.families.load import load
from reweigh.files.artifacts import write_text
from reweigh.lab.views.charts import CHANGED, INK, MUTED, PAPER, svg
from reweigh.lab.views.html import Html
from reweigh.lab.views.mechanism import heatmap, step_svg, warm
from reweigh.method.trace import CandidateRow, Step
from reweigh.world import path, table_path
from reweigh.world.scenes import Scene, scene

FOLDER = Path(__file__).parents[1] / "docs" / "images"
PROMPT = "Please describe this image in detail."
SIDE, GAP = 224, 20
STRIP = 26
"""Pixels that the scale adds below a heat map."""


def first_change(rw: Attached, shown: Scene) -> Step:
    """The first step at which the edit changed the word."""
    with rw.using(trace=True) as run:
        rw.describe(shown.image())
    assert run.trace is not None
    return next(step for step in run.trace.steps() if step.changed)


def winners(step: Step) -> list[CandidateRow]:
    """The word that was suppressed and the one that was emitted."""
    rows = {row.token: row for row in step.candidates}
    return [rows[token] for token in (step.winner_before, step.winner_after)]


def draw_measure(rw: Attached, shown: Scene, step: Step) -> Html:
    """The picture, and where each of the two words has a high rank."""
    tokens = [row.token for row in winners(step)]
    inputs = rw.prepare([shown.image()], [PROMPT])
    [evidence] = reweigh.measure(rw.model, inputs, layers=[rw.layer], locate=tokens)
    assert evidence is not None
    sheet = Image.new("RGB", (3 * SIDE + 2 * GAP, SIDE + STRIP), PAPER)
    sheet.paste(shown.image(SIDE), (0, 0))
    said = ["the picture"]
    for number, row in enumerate(winners(step)):
        cells = evidence.grid(rw.layer, number)
        painted = Image.open(BytesIO(heatmap(shown.image(SIDE), cells, low=0.0, high=1.0)))
        sheet.paste(with_scale(painted), ((number + 1) * (SIDE + GAP), 0))
        said.append(f"{row.text.strip()}: mean {1e3 * float(np.nanmean(cells)):.1f} · 10⁻³")

    def draw(panel: Any, narrow: bool) -> None:
        panel.imshow(sheet)
        panel.axis("off")
        for number, words in enumerate(said):
            where = (number * (SIDE + GAP) + SIDE / 2, SIDE + STRIP + 16)
            panel.text(*where, words, ha="center", va="top", color=CHANGED if number else MUTED)

    alt = "A scene, and for two words the map of one divided by their rank at each of its 64 positions"
    return svg(draw, alt=alt, height=2.9)


def with_scale(painted: Image.Image) -> Image.Image:
    """A heat map with its colors from 0 to 1 drawn below it."""
    width, height = painted.size
    sheet = Image.new("RGB", (width, height + STRIP), "white")
    sheet.paste(painted, (0, 0))
    pen = ImageDraw.Draw(sheet)
    edge = int(pen.textlength("0")) + 8
    pen.text((4, height + 7), "0", fill="black")
    pen.text((width - edge + 4, height + 7), "1", fill="black")
    across = width - 2 * edge
    share = np.broadcast_to(np.linspace(0, 1, across)[None, :, None], (10, across, 1))
    sheet.paste(Image.fromarray(warm(share).astype(np.uint8)), (edge, height + 8))
    return sheet


def observed(token: int, layer: int) -> Iterator[float]:
    """Evidence of a token in the calibration images in which it was a candidate, once for each step."""
    kept = Calibration.load(table_path()).observations
    own = kept.token == token
    values = kept.values[kept.layers.index(layer)][own]
    yield from np.repeat(values, kept.count[own]).tolist()


def draw_register(layer: int, rows: list[CandidateRow]) -> Html:
    """Every observation of the two words, their medians, and what this picture shows."""

    def draw(panel: Any, narrow: bool) -> None:
        names = []
        for number, row in enumerate(rows):
            seen = 1e3 * np.array(list(observed(row.token, layer)))
            assert row.reference is not None
            assert row.evidence is not None
            spread = (
                np.arange(len(seen)) * 0.618 % 1 - 0.5
            ) * 0.5  # a golden-ratio series spreads the dots evenly
            panel.plot(seen, number + spread, ".", color=INK, ms=3, alpha=0.3, mew=0)
            panel.plot([1e3 * row.reference] * 2, [number - 0.35, number + 0.35], color=INK, lw=2)
            panel.plot([1e3 * row.evidence], [number], "o", color=CHANGED, mec=PAPER, ms=8)
            names.append(f"{row.text.strip()}\n{len(seen)} times")
        panel.set_xscale("log")
        panel.xaxis.set_major_formatter("{x:g}")
        panel.set_yticks(range(len(names)), names)
        panel.invert_yaxis()
        panel.grid(axis="y", visible=False)
        panel.set_xlabel("evidence in 10⁻³; bar: reference, the median; large dot: this picture")

    alt = (
        "Observations of two words on a logarithmic axis, with their medians and the evidence in this picture"
    )
    return svg(draw, alt=alt, height=2.4)


DARK = "--ink: #e4e7eb; --card: #1c2027; --line: #333a45; --mark: #f0c264; --muted: #a0a9b5"
GROUND = f"""<style>.ground {{fill: #ffffff}}
@media (prefers-color-scheme: dark) {{ svg {{{DARK}}} .ground {{fill: #1c2027}} }}</style>
<rect class="ground" width="100%" height="100%"/>"""


def on_paper(drawing: Html) -> str:
    """A ground of its own, light or dark as the reader's page is, with ink that can be read on it."""
    head, rest = str(drawing).split(">", 1)
    return f"{head}>{GROUND}{rest}\n"


def draw() -> dict[str, str]:
    """The pictures by the name of their file."""
    shown = scene("evaluation", index=0)
    rw = reweigh.attach(*load(path()), table=table_path())
    step = first_change(rw, shown)
    drawings = {
        "measure.svg": draw_measure(rw, shown, step),
        "register.svg": draw_register(rw.layer, winners(step)),
        "intervene.svg": step_svg(step.plot_rows(), limit=6),
    }
    return {name: on_paper(drawing) for name, drawing in drawings.items()}


if __name__ == "__main__":
    for name, drawing in draw().items():
        write_text(FOLDER / name, drawing)
