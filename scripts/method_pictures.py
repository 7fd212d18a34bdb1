"""Draw the three steps of the method for docs/method.md, from one scene of the embedded world and the shipped table.

python scripts/method_pictures.py
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from reweigh.results.plots import mechanism_plot

import reweigh
from reweigh.decoding.attach import ReweighSession
from reweigh.families.load import load
from reweigh.files.artifacts import write_text
from reweigh.method.trace import Row, Step
from reweigh.results import svg
from reweigh.results.heat import STRIP, heatmap
from reweigh.results.html import Html
from reweigh.tables.observations import Observations
from reweigh.world import path, table_path
from reweigh.world.scenes import Scene, scene

FOLDER = Path(__file__).parents[1] / "docs" / "images"
PROMPT = "Please describe this image in detail."
SIDE, GAP = 224, 20


def first_change(rw: ReweighSession, shown: Scene) -> Step:
    """The first step at which the edit changed the word."""
    with rw.request(trace=True) as request:
        rw.describe(shown.image())
    assert request.trace is not None
    return next(step for step in request.trace.steps() if step.changed)


def winners(step: Step) -> list[tuple[Row, str]]:
    """The word held back and the one written instead, in the colour of what the edit changed."""
    rows = {row.token: row for row in step.candidates}
    return [(rows[token], svg.BROWN) for token in (step.winner_before, step.winner_after)]


def place(data: bytes, x: float, more: int = 0) -> str:
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return f'<image x="{x}" y="0" width="{SIDE}" height="{SIDE + more}" href="{source}"/>'


def draw_measure(rw: ReweighSession, shown: Scene, step: Step) -> Html:
    """The picture, and where each of the two words has a high rank."""
    tokens = [row.token for row, _ in winners(step)]
    inputs = rw.prepare([shown.image()], [PROMPT])
    [evidence] = reweigh.measure(rw.model, inputs, layers=[rw.layer], locate=tokens)
    assert evidence is not None
    buffer = BytesIO()
    shown.image(SIDE).save(buffer, "PNG")
    parts = [place(buffer.getvalue(), 0), svg.text(SIDE / 2, SIDE + 20, "the picture", fill=svg.MUTED)]
    for number, (row, colour) in enumerate(winners(step)):
        x = (number + 1) * (SIDE + GAP)
        cells = evidence.grid(rw.layer, number)
        parts.append(place(heatmap(shown.image(SIDE), cells, low=0.0, high=1.0, scale=True), x, STRIP))
        words = f"{row.text.strip()}: mean {1e3 * float(np.nanmean(cells)):.1f} · 10⁻³"
        parts.append(svg.text(x + SIDE / 2, SIDE + STRIP + 20, words, fill=colour, weight=600))
    label = "A scene, and for two words the map of one divided by their rank at each of its 64 positions"
    return svg.svg(3 * SIDE + 2 * GAP, SIDE + STRIP + 30, parts, label)


def observed(token: int, layer: int) -> Iterator[float]:
    """Evidence of a token in the calibration images in which it was a candidate, once for each step."""
    folder = Path(table_path())
    images = json.loads((folder / "calibration.json").read_text(encoding="utf-8"))["images"]
    kept = Observations.load(folder / "observations.safetensors", list(images))
    own = kept.token == token
    values = kept.values[kept.layers.index(layer)][own]
    yield from np.repeat(values, kept.count[own]).tolist()


def draw_register(layer: int, pairs: Sequence[tuple[Row, str]]) -> Html:
    """Every observation of the two words, their medians, and what this picture shows."""
    values = [list(observed(row.token, layer)) for row, _ in pairs]
    low, high = math.floor(math.log10(min(map(min, values)))), math.ceil(math.log10(max(map(max, values))))
    left, width, tall = 110, 712, 84

    def x(value: float) -> float:
        return left + (math.log10(value) - low) / (high - low) * (width - left - 20)

    bottom = 34 + tall * len(pairs)
    parts = []
    for power in range(low, high + 1):
        parts.append(svg.line(x(10.0**power), 24, x(10.0**power), bottom, svg.LINE))
        parts.append(svg.text(x(10.0**power), bottom + 18, f"{10.0 ** (power + 3):g}", fill=svg.MUTED))
    for number, ((row, colour), seen) in enumerate(zip(pairs, values, strict=True)):
        middle = 34 + tall * (number + 0.5)
        parts.append(svg.text(left - 12, middle, row.text.strip(), anchor="end", fill=colour, weight=600))
        parts.append(
            svg.text(left - 12, middle + 16, f"{len(seen)} times", anchor="end", fill=svg.MUTED, size=11)
        )
        for index, value in enumerate(seen):  # a golden-ratio series spreads the dots evenly
            y = middle + (index * 0.618 % 1 - 0.5) * 40
            parts.append(
                f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="1.6" opacity="0.3" {svg.paint(svg.INK)}/>'
            )
        assert row.reference is not None
        assert row.evidence is not None
        parts.append(svg.line(x(row.reference), middle - 30, x(row.reference), middle + 30, svg.INK, 2.5))
        parts.append(svg.circle(x(row.evidence), middle, colour, svg.PAPER))
    parts.append(
        svg.text(left, 14, "bar: reference, the median; large dot: this picture", anchor="start", size=12)
    )
    parts.append(svg.text((left + width) / 2, bottom + 36, "evidence in 10⁻³", fill=svg.MUTED))
    label = (
        "Observations of two words on a logarithmic axis, with their medians and the evidence in this picture"
    )
    return svg.svg(width, bottom + 44, parts, label)


def on_paper(drawing: Html) -> str:
    """White ground, so that the dark ink can be read on a dark page."""
    head, rest = str(drawing).split(">", 1)
    return f'{head}><rect width="100%" height="100%" fill="#ffffff"/>{rest}\n'


def draw() -> dict[str, str]:
    """The pictures by the name of their file."""
    shown = scene("evaluation", index=0)
    rw = reweigh.attach(*load(path()), table=table_path())
    step = first_change(rw, shown)
    drawings = {
        "measure.svg": draw_measure(rw, shown, step),
        "register.svg": draw_register(rw.layer, winners(step)),
        "intervene.svg": mechanism_plot(step.plot_rows(), limit=6),
    }
    return {name: on_paper(drawing) for name, drawing in drawings.items()}


if __name__ == "__main__":
    for name, drawing in draw().items():
        write_text(FOLDER / name, drawing)
