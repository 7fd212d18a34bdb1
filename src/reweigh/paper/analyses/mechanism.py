"""One recorded step in the columns of the paper's mechanism table, from what a study corpus kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reweigh.paper.analyses.allocation import StepField
from reweigh.paper.analyses.windows import winner
from reweigh.paper.corpus.image import StudyImage


def step_rows(
    image: StudyImage,
    step: int,
    references: NDArray[np.float64],
    scale: float,
    beta: float,
    texts: Sequence[str],
) -> list[dict[str, Any]]:
    """Every candidate of a step: logits before and after, evidence, reference, deficit, strength, the winners marked."""
    ids, logits = image.step(step)
    evidence = image.evidence["dmrr"][ids].astype(np.float64)
    field = StepField.of(evidence, references[ids], scale)
    shift = beta * field.strength
    raw = logits.astype(np.float64)
    before, after = winner(ids, raw), winner(ids, raw - shift)
    return [
        {
            "id": int(token),
            "token": texts[token],
            "z": float(raw[i]),
            "dmrr": float(evidence[i]),
            "b": None if np.isnan(references[token]) else float(references[token]),
            "deficit": None
            if np.isnan(references[token])
            else max(float(references[token] - evidence[i]), 0.0),
            "s": float(field.strength[i]),
            "shift": float(shift[i]),
            "z_after": float(raw[i] - shift[i]),
            "before_winner": int(token) == before,
            "after_winner": int(token) == after,
        }
        for i, token in enumerate(ids)
    ]


def first_changed_step(
    image: StudyImage, references: NDArray[np.float64], scale: float, beta: float
) -> int | None:
    """The first step at which the edit changes the winner: up to there the method says what the base says."""
    for step in range(len(image)):
        ids, logits = image.step(step)
        field = StepField.of(image.evidence["dmrr"][ids], references[ids], scale)
        raw = logits.astype(np.float64)
        if winner(ids, raw) != winner(ids, raw - beta * field.strength):
            return step
    return None
