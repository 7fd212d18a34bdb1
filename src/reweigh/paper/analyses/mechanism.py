"""One recorded step in the columns of the paper's mechanism table, and the figure with the picture above it."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from reweigh.paper.analyses.steps import Field, winner
from reweigh.paper.corpus.image import StudyImage
from reweigh.results.mechanism import Candidate

LIMIT = 6
"""Candidates with the highest logits that are drawn."""


def candidates(
    image: StudyImage, step: int, field: Field, beta: float, texts: Sequence[str]
) -> list[Candidate]:
    """Every candidate of a step: logits before and after, evidence, reference, deficit, strength, the winners marked."""
    ids, logits = image.step(step)
    evidence = field.evidence(image, ids)
    s = field.strengths(ids, evidence)
    shift, raw, known = beta * s, logits.astype(np.float64), field.registered(ids)
    before, after = winner(ids, raw), winner(ids, raw - shift)
    return [
        {
            "id": int(token),
            "token": texts[token],
            "z": float(raw[i]),
            "dmrr": float(evidence[i]),
            "b": float(field.references[token]) if known[i] else None,
            "deficit": max(float(field.references[token] - evidence[i]), 0.0) if known[i] else None,
            "s": float(s[i]),
            "shift": float(shift[i]),
            "z_after": float(raw[i] - shift[i]),
            "before_winner": int(token) == before,
            "after_winner": int(token) == after,
        }
        for i, token in enumerate(ids)
    ]


def first_changed_step(image: StudyImage, field: Field, beta: float) -> int | None:
    """The first step at which the edit changes the winner: up to there the method says what the base says."""
    for step in range(len(image)):
        ids, logits = image.step(step)
        raw = logits.astype(np.float64)
        edit = beta * field.strengths(ids, field.evidence(image, ids))
        if winner(ids, raw) != winner(ids, raw - edit):
            return step
    return None


def draw_mechanism(
    rows: Sequence[Candidate], picture: Any, painted: Sequence[bytes], words: Sequence[str], path: Path
) -> None:
    """Draw the picture, the words' evidence painted on it, and the logits of a step below."""
    from PIL import Image

    from reweigh.results.charts import chart
    from reweigh.results.mechanism import draw_step

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
