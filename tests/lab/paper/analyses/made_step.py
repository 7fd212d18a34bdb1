"""An image of one step with given logits, evidence and references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reweigh.lab.paper.corpus.image import StudyImage
from reweigh.lab.paper.corpus.reading import PositionSummary


def recorded(rows: Sequence[tuple[Any, ...]]) -> tuple[StudyImage, np.ndarray[Any, Any], list[str]]:
    words = [row[0] for row in rows]
    none = PositionSummary(np.ones(1), np.zeros((1, 1)), np.zeros((1, 1), dtype=np.int32))
    image = StudyImage(
        number=0,
        id=0,
        key="0",
        text=words[0],
        tokens=np.array([0]),
        probability=np.array([0.5]),
        first=np.array([0, len(rows)]),
        candidates=np.arange(len(rows)),
        logits=np.array([row[1] for row in rows], dtype=np.float32),
        evidence={"dmrr": np.array([row[2] for row in rows], dtype=np.float32) / 1000},
        original=none,
        equalized=none,
    )
    return image, np.array([row[3] for row in rows]) / 1000, words
